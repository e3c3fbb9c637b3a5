// Unpacking with AVX2; products_unpack512.h describes the functions. Sub-blocks are gathered as 16-byte lanes and
// transposed by emit_steps, which wants sub-blocks 4L .. 4L + 3 in lane L of its four vectors: vector k takes
// sub-blocks k, 4 + k, 8 + k and 12 + k as its lanes.
#pragma once

#include "vector.h"

#if STRATA_AVX2 && !STRATA_AVX512

namespace strata::STRATA_ISA {

// Vector k of 16-byte pieces, piece(s) being the address of sub-block s's.
template <class Piece>
static inline Bytes64 pieces(int k, Piece piece) {
    return lanes(piece(k), piece(4 + k), piece(8 + k), piece(12 + k));
}

template <int stride, int first, class Emit>
static inline void emit_strided(const uint8_t* b, Emit emit) {
    auto piece = [&](int s) { return b + stride * s + first; };
    emit_steps(emit, 0, pieces(0, piece), pieces(1, piece), pieces(2, piece), pieces(3, piece));
}

template <class Emit>
static inline void emit_adjoined(const uint8_t* p, const uint8_t* q, Emit emit) {
    auto piece = [&](int s) { return s < 8 ? p + 16 * s : q + 16 * (s - 8); };
    emit_steps(emit, 0, pieces(0, piece), pieces(1, piece), pieces(2, piece), pieces(3, piece));
}

struct NibbleTable {
    Bytes64 table;
    explicit NibbleTable(const uint8_t* codes) : table(every_lane(codes)) {}
    Bytes64 low(Bytes64 x) const { return look_up(table, x & bytes_of(15)); }
    Bytes64 high(Bytes64 x) const { return low(right<4>(x)); }
};

template <int stride>
static inline Floats16 near_halves(const uint8_t* b) {
    return strided_halves<stride>(b);
}

static inline Floats16 exponents17(const uint8_t* b) {
    return floats_of_bits(
        words16([&](int s) { return static_cast<int>(bits_of_float(e8m0_to_half_float(b[17 * s]))); }));
}

static inline Floats16 every_half(const uint8_t* b) {
    const float d = half_to_float(read16(b));
    return two_floats(d, d);
}

static inline Bytes64 tripled(Bytes64 x) {
    return {_mm256_add_epi8(x.a, _mm256_add_epi8(x.a, x.a)), _mm256_add_epi8(x.b, _mm256_add_epi8(x.b, x.b))};
}
static inline Bytes64 thirds(Bytes64 x) {
    auto digit = [](__m256i v) {
        auto minus_one_from = [&](int least) {
            return _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(static_cast<char>(least))), v);
        };
        return _mm256_abs_epi8(_mm256_add_epi8(minus_one_from(86), minus_one_from(171)));
    };
    return {digit(x.a), digit(x.b)};
}

template <class Emit>
static inline void emit_chunks(const uint8_t* p, const uint8_t* q, Emit emit) {
    const Bytes64 mask = bytes_of(15);
    for (int h = 0; h < 2; ++h, p += 16, q += 16) {
        const Bytes64 even = lanes(p, p + 64, q, q + 64), odd = lanes(p + 32, p + 96, q + 32, q + 96);
        emit_steps(emit, 4 * h, even & mask, right<4>(even) & mask, odd & mask, right<4>(odd) & mask);
    }
}

class ChunkFifths {
public:
    ChunkFifths(const uint8_t* p, const uint8_t* q) {
        bits_[0] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        bits_[1] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
    }
    Bytes64 add(int step, Bytes64 codes) const {
        auto here = [&](__m256i bits) {
            const __m256i spread = _mm256_permutevar8x32_epi32(bits, _mm256_set1_epi32(step));
            const __m256i own = _mm256_srlv_epi32(spread, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            return _mm256_and_si256(_mm256_slli_epi16(own, 4), _mm256_set1_epi8(16));
        };
        return codes | Bytes64{here(bits_[0]), here(bits_[1])};
    }

private:
    __m256i bits_[2];
};

struct KScales {
    uint64_t small[2][2];  // scales and minima of p, of q
    const uint8_t* block[2];
    KScales(const uint8_t* p, const uint8_t* q) : block{p, q} {
        for (int i = 0; i < 2; ++i) {
            const uint32_t w0 = read32(block[i] + 4), w1 = read32(block[i] + 8), w2 = read32(block[i] + 12);
            const uint64_t high = (w2 & 0x0f0f0f0fu) | (w0 >> 6 & 0x03030303u) << 4;
            const uint64_t higher = (w2 >> 4 & 0x0f0f0f0fu) | (w1 >> 6 & 0x03030303u) << 4;
            small[0][i] = (w0 & 0x3f3f3f3fu) | high << 32;
            small[1][i] = (w1 & 0x3f3f3f3fu) | higher << 32;
        }
    }
    Floats16 times(int which) const {
        auto factor = [&](int i) { return half_to_float(read16(block[i] + 2 * which)); };
        return scaled16(bytes16(small[which][0], small[which][1]), factor(0), factor(1));
    }
    Floats16 scales() const { return times(0); }
    Floats16 minima() const { return times(1); }
};

// Q2_K, Q3_K and Q6_K: sub-block s = 4L + k is (half h = L / 2, bit pair g = 2 (L % 2) + k / 2, part e = k % 2) of the
// block. The bit pairs of 64 bytes, 32 for each half: lane L of the result has g = 2 (L % 2) in its lowest bits.
static inline Bytes64 pairs_of(const uint8_t* packed, int part) {
    const uint8_t* p = packed + 16 * part;
    return right_odd<4>(lanes(p, p, p + 32, p + 32));
}

template <class Emit>
static inline void emit_crumbs(const uint8_t* packed, Emit emit) {
    const Bytes64 mask = bytes_of(3), a = pairs_of(packed, 0), b = pairs_of(packed, 1);
    emit_steps(emit, 0, a & mask, b & mask, right<2>(a) & mask, right<2>(b) & mask);
}

template <class Emit>
static inline void emit_crumbs_and_bits(const uint8_t* packed, const uint8_t* third, Emit emit) {
    const Bytes64 mask = bytes_of(3), bit = bytes_of(4), a = pairs_of(packed, 0), b = pairs_of(packed, 1);
    auto bits_of = [&](int part) {  // bit 4 h + g: h moves by 4, the odd lanes' g by 2
        const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(third + 16 * part));
        return Bytes64{_mm256_set_m128i(_mm_srli_epi16(x, 2), x),
                       _mm256_set_m128i(_mm_srli_epi16(x, 6), _mm_srli_epi16(x, 4))};
    };
    const Bytes64 c = bits_of(0), d = bits_of(1);
    emit_steps(emit, 0, (a & mask) | (left<2>(c) & bit), (b & mask) | (left<2>(d) & bit),
               (right<2>(a) & mask) | (left<1>(c) & bit), (right<2>(b) & mask) | (left<1>(d) & bit));
}

template <class Emit>
static inline void emit_nibbles_and_pairs(const uint8_t* packed, const uint8_t* high, Emit emit) {
    const Bytes64 mask = bytes_of(15), top = bytes_of(48), a = pairs_of(high, 0), b = pairs_of(high, 1);
    auto low = [&](int k) {
        const uint8_t* p = packed + 16 * k;
        return right_odd<4>(lanes(p, p, p + 64, p + 64)) & mask;
    };
    emit_steps(emit, 0, low(0) | (left<4>(a) & top), low(1) | (left<4>(b) & top), low(2) | (left<2>(a) & top),
               low(3) | (left<2>(b) & top));
}

}  // namespace strata::STRATA_ISA
#endif
