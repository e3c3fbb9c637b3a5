// Decoders of one whole group (16 sub-blocks) straight into the group layout, for the formats that models use most.
// Each equals its block decoder in blocks.h to the bit; products_decode.cpp falls back on that one for the others.
//
// store_steps wants sub-blocks 4L .. 4L + 3 in lane L of its four vectors, so vector k takes sub-blocks k, 4 + k, 8 + k
// and 12 + k as its lanes.
#pragma once

#include <string.h>

#include "blocks.h"
#include "vector.h"

namespace strata::STRATA_ISA {

template <class F>
struct FastGroup {
    static constexpr bool exists = false;
};

#if STRATA_VECTOR

// Vector k of 16-byte pieces, piece(s) being the address of sub-block s's.
template <class Piece>
static inline Bytes64 pieces(int k, Piece piece) {
    return lanes(piece(k), piece(4 + k), piece(8 + k), piece(12 + k));
}

// Sub-blocks of 32 nibbles in 16 bytes, low nibbles first.
template <class Piece, class Map>
static inline void nibble_pieces(uint8_t* codes, Piece piece, Map map) {
    const Bytes64 mask = bytes_of(15);
    const Bytes64 a = pieces(0, piece), b = pieces(1, piece), c = pieces(2, piece), d = pieces(3, piece);
    store_steps(codes, map(a & mask), map(b & mask), map(c & mask), map(d & mask));
    store_steps(codes + 256, map(right<4>(a) & mask), map(right<4>(b) & mask), map(right<4>(c) & mask),
                map(right<4>(d) & mask));
}

// The fp16 numbers at `b`, one per `stride` bytes, each for `shared` sub-blocks, as float32.
template <int stride, int shared = 1>
static inline void strided_halves(const uint8_t* b, float* to) {
    auto half = [&](int s) { return static_cast<short>(read16(b + s / shared * stride)); };
    for (int i = 0; i < 16; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_setr_epi16(half(i), half(i + 1), half(i + 2), half(i + 3), half(i + 4),
                                                                half(i + 5), half(i + 6), half(i + 7))));
}

// Tables of 16 signed values, with their format's offset.
struct OffsetTable {
    alignas(16) uint8_t code[16];
    constexpr OffsetTable(const int8_t* values, int offset) : code() {
        for (int i = 0; i < 16; ++i) code[i] = static_cast<uint8_t>(values[i] + offset);
    }
};
static constexpr OffsetTable non_linear_codes(non_linear, 128), e2m1_codes(e2m1_doubled, 12);

template <>
struct FastGroup<Q4_0> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        nibble_pieces(codes, [&](int s) { return b + 18 * s + 2; }, [](Bytes64 x) { return x; });
        strided_halves<18>(b, scale);
    }
};

template <>
struct FastGroup<Q4_1> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        nibble_pieces(codes, [&](int s) { return b + 20 * s + 4; }, [](Bytes64 x) { return x; });
        strided_halves<20>(b, scale);
        strided_halves<20>(b + 2, minimum);
        for (int s = 0; s < 16; ++s) minimum[s] = -minimum[s];
    }
};

// Blocks of 32 values in 5 bits: `high` bytes from the start four bytes with a bit per value, then 16 bytes of nibbles.
template <int stride, int high>
static inline void five_bit_pieces(const uint8_t* b, uint8_t* codes) {
    alignas(32) uint8_t plain[16 * 32];
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i own = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
    for (int s = 0; s < 16; ++s, b += stride) {
        const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + high + 4)), low = _mm_set1_epi8(15);
        const __m256i nibbles = _mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(both, 4), low), _mm_and_si128(both, low));
        const __m256i bits = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(read32(b + high))), spread);
        const __m256i fifth = _mm256_cmpeq_epi8(_mm256_and_si256(bits, own), own);
        _mm256_store_si256(reinterpret_cast<__m256i*>(plain + 32 * s),
                           _mm256_or_si256(nibbles, _mm256_and_si256(fifth, _mm256_set1_epi8(16))));
    }
    for (int part = 0; part < 2; ++part) {
        auto piece = [&](int s) { return plain + 32 * s + 16 * part; };
        store_steps(codes + 256 * part, pieces(0, piece), pieces(1, piece), pieces(2, piece), pieces(3, piece));
    }
}

template <>
struct FastGroup<Q5_0> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        five_bit_pieces<22, 2>(b, codes);
        strided_halves<22>(b, scale);
    }
};

template <>
struct FastGroup<Q5_1> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        five_bit_pieces<24, 4>(b, codes);
        strided_halves<24>(b, scale);
        strided_halves<24>(b + 2, minimum);
        for (int s = 0; s < 16; ++s) minimum[s] = -minimum[s];
    }
};

template <>
struct FastGroup<IQ4_NL> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const Bytes64 table = every_lane(non_linear_codes.code);
        nibble_pieces(codes, [&](int s) { return b + 18 * s + 2; }, [&](Bytes64 x) { return look_up(table, x); });
        strided_halves<18>(b, scale);
    }
};

template <>
struct FastGroup<MXFP4> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const Bytes64 table = every_lane(e2m1_codes.code);
        nibble_pieces(codes, [&](int s) { return b + 17 * s + 1; }, [&](Bytes64 x) { return look_up(table, x); });
        for (int s = 0; s < 16; ++s) scale[s] = e8m0_to_half_float(b[17 * s]);
    }
};

template <>
struct FastGroup<IQ4_XS> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const Bytes64 table = every_lane(non_linear_codes.code);
        nibble_pieces(codes, [&](int s) { return b + 136 * (s / 8) + 8 + 16 * (s % 8); },
                      [&](Bytes64 x) { return look_up(table, x); });
        const __m128i small = bytes16(small_scales(b), small_scales(b + 136));
        scale16(_mm_sub_epi8(small, _mm_set1_epi8(32)), half_to_float(read16(b)), half_to_float(read16(b + 136)), scale);
    }

    // Eight scales of 6 bits as bytes: nibbles of 4 bytes, and two more bits each of a 16-bit word.
    static uint64_t small_scales(const uint8_t* block) {
        uint64_t low = read32(block + 4), high = read16(block + 2);
        low = (low | low << 16) & 0x0000ffff0000ffffu;
        low = (low | low << 8) & 0x00ff00ff00ff00ffu;
        low = (low | low << 4) & 0x0f0f0f0f0f0f0f0fu;
        high = (high | high << 24) & 0x000000ff000000ffu;
        high = (high | high << 12) & 0x000f000f000f000fu;
        high = (high | high << 6) & 0x0303030303030303u;
        return low | high << 4;
    }
};

template <>
struct FastGroup<Q8_0> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const Bytes64 flip = bytes_of(128);
        for (int h = 0; h < 2; ++h) {
            auto piece = [&](int s) { return b + 34 * s + 2 + 16 * h; };
            store_steps(codes + 256 * h, pieces(0, piece) ^ flip, pieces(1, piece) ^ flip, pieces(2, piece) ^ flip,
                        pieces(3, piece) ^ flip);
        }
        strided_halves<34>(b, scale);
    }
};

// Q4_K and Q5_K: the 6-bit scales and minima of two blocks, four at a time in 32-bit words.
template <int bytes>
static inline void k_scales2(const uint8_t* b, float* scale, float* minimum) {
    uint64_t small[2], smaller[2];
    for (int block = 0; block < 2; ++block) {
        const uint8_t* from = b + bytes * block + 4;
        const uint32_t w0 = read32(from), w1 = read32(from + 4), w2 = read32(from + 8);
        const uint64_t high = (w2 & 0x0f0f0f0fu) | (w0 >> 6 & 0x03030303u) << 4;
        const uint64_t higher = (w2 >> 4 & 0x0f0f0f0fu) | (w1 >> 6 & 0x03030303u) << 4;
        small[block] = (w0 & 0x3f3f3f3fu) | high << 32;
        smaller[block] = (w1 & 0x3f3f3f3fu) | higher << 32;
    }
    const uint8_t* c = b + bytes;
    scale16(bytes16(small[0], small[1]), half_to_float(read16(b)), half_to_float(read16(c)), scale);
    scale16(bytes16(smaller[0], smaller[1]), half_to_float(read16(b + 2)), half_to_float(read16(c + 2)), minimum);
}

template <>
struct FastGroup<Q4_K> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        const Bytes64 mask = bytes_of(15);
        for (int h = 0; h < 2; ++h) {
            const uint8_t *p = b + 16 + 16 * h, *q = p + 144;
            const Bytes64 even = lanes(p, p + 64, q, q + 64), odd = lanes(p + 32, p + 96, q + 32, q + 96);
            store_steps(codes + 256 * h, even & mask, right<4>(even) & mask, odd & mask, right<4>(odd) & mask);
        }
        k_scales2<144>(b, scale, minimum);
    }
};

template <>
struct FastGroup<Q5_K> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        const Bytes64 mask = bytes_of(15), fifth = bytes_of(16);
        for (int h = 0; h < 2; ++h) {
            const uint8_t *p = b + 48 + 16 * h, *q = p + 176, *x = b + 16 + 16 * h, *y = x + 176;
            const Bytes64 even = lanes(p, p + 64, q, q + 64), odd = lanes(p + 32, p + 96, q + 32, q + 96);
            const Bytes64 high = right_odd<4>(lanes(x, x, y, y));
            store_steps(codes + 256 * h, (even & mask) | (left<4>(high) & fifth),
                        (right<4>(even) & mask) | (left<3>(high) & fifth), (odd & mask) | (left<2>(high) & fifth),
                        (right<4>(odd) & mask) | (left<1>(high) & fifth));
        }
        k_scales2<176>(b, scale, minimum);
    }
};

// Sub-block s = 4L + k of 16 values is (half h = L / 2, bit pair g = 2 (L % 2) + k / 2, part e = k % 2) of the block.
template <>
struct FastGroup<Q6_K> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const Bytes64 mask = bytes_of(15), top = bytes_of(48);
        Bytes64 low[4], high[2];
        for (int k = 0; k < 4; ++k) {
            const uint8_t* p = b + 16 * k;
            low[k] = right_odd<4>(lanes(p, p, p + 64, p + 64)) & mask;
        }
        for (int e = 0; e < 2; ++e) {
            const uint8_t* p = b + 128 + 16 * e;
            high[e] = right_odd<4>(lanes(p, p, p + 32, p + 32));
        }
        store_steps(codes, low[0] | (left<4>(high[0]) & top), low[1] | (left<4>(high[1]) & top),
                    low[2] | (left<2>(high[0]) & top), low[3] | (left<2>(high[1]) & top));
        const float d = half_to_float(read16(b + 208));
        scale16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 192)), d, d, scale);
    }
};

template <>
struct FastGroup<Q2_K> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        const Bytes64 mask = bytes_of(3);
        Bytes64 crumbs[2];
        for (int e = 0; e < 2; ++e) {
            const uint8_t* p = b + 16 + 16 * e;
            crumbs[e] = right_odd<4>(lanes(p, p, p + 32, p + 32));
        }
        store_steps(codes, crumbs[0] & mask, crumbs[1] & mask, right<2>(crumbs[0]) & mask, right<2>(crumbs[1]) & mask);
        const float d = half_to_float(read16(b + 80)), dmin = half_to_float(read16(b + 82));
        const __m128i small = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)), low = _mm_set1_epi8(15);
        scale16(_mm_and_si128(small, low), d, d, scale);
        scale16(_mm_and_si128(_mm_srli_epi16(small, 4), low), dmin, dmin, minimum);
    }
};

#endif

}  // namespace strata::STRATA_ISA
