// Unpacking with AVX-512: bytes are put into the order of the group layout by whole-register permutes while they are
// still packed, and vpmultishiftqb then takes each byte's bits from where they lie. Functions of the same names for
// AVX2 are in products_unpack256.h; products_fast.h says what the formats do with them.
#pragma once

#include "vector.h"

#if STRATA_AVX512

namespace strata::STRATA_ISA {

// 64 constant bytes, made from a function of their position at compile time.
struct Constant64 {
    alignas(64) uint8_t byte[64];
    template <class Make>
    constexpr explicit Constant64(Make make) : byte() {
        for (int i = 0; i < 64; ++i) byte[i] = static_cast<uint8_t>(make(i));
    }
    __m512i load() const { return _mm512_load_si512(byte); }
};

// Where the low bit of byte i of each word lies in its eight bytes.
constexpr int low_bit(int i) { return 8 * (i % 4) + i % 8 / 4 * 32; }

// The 4 x 4 transpose of 16-byte lanes: to[j] = lane j of r[0], r[1], r[2], r[3].
static inline void transpose_lanes(const __m512i* r, __m512i* to) {
    const __m512i a = _mm512_shuffle_i64x2(r[0], r[1], 0x44), b = _mm512_shuffle_i64x2(r[0], r[1], 0xee);
    const __m512i c = _mm512_shuffle_i64x2(r[2], r[3], 0x44), d = _mm512_shuffle_i64x2(r[2], r[3], 0xee);
    to[0] = _mm512_shuffle_i64x2(a, c, 0x88);
    to[1] = _mm512_shuffle_i64x2(a, c, 0xdd);
    to[2] = _mm512_shuffle_i64x2(b, d, 0x88);
    to[3] = _mm512_shuffle_i64x2(b, d, 0xdd);
}

// Four blocks of `stride` bytes (at least 16, at most 32) are met by two loads that stay inside of them. An index into
// both for the byte at `offset`.
constexpr int of_two_loads(int stride, int offset) { return offset < 64 ? offset : 64 + offset - (4 * stride - 64); }

// 16 blocks of `stride` bytes with 16 packed bytes each, from byte `first` on: emit(j, words) with word s being bytes
// 4 j .. 4 j + 3 of block s.
template <int stride, int first, class Emit>
static inline void emit_strided(const uint8_t* b, Emit emit) {
    static constexpr Constant64 index(
        [](int i) { return of_two_loads(stride, first + i / 4 % 4 * stride + i / 16 * 4 + i % 4); });
    __m512i r[4], words[4];
#pragma GCC unroll 4
    for (int m = 0; m < 4; ++m) {
        const uint8_t* four = b + 4 * stride * m;
        const __m512i end = _mm512_loadu_si512(four + 4 * stride - 64);
        r[m] = _mm512_permutex2var_epi8(_mm512_loadu_si512(four), index.load(), end);
    }
    transpose_lanes(r, words);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) emit(j, Bytes64{words[j]});
}

// The same for two blocks of eight sub-blocks of 16 bytes each, that lie side by side from p and from q on.
template <class Emit>
static inline void emit_adjoined(const uint8_t* p, const uint8_t* q, Emit emit) {
    const __m512i step = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
        const __m512i index = _mm512_add_epi32(step, _mm512_set1_epi32(2 * pair));
        const __m512i a = _mm512_permutex2var_epi32(_mm512_loadu_si512(p), index, _mm512_loadu_si512(p + 64));
        const __m512i c = _mm512_permutex2var_epi32(_mm512_loadu_si512(q), index, _mm512_loadu_si512(q + 64));
        emit(2 * pair, Bytes64{_mm512_shuffle_i64x2(a, c, 0x44)});
        emit(2 * pair + 1, Bytes64{_mm512_shuffle_i64x2(a, c, 0xee)});
    }
}

// A table of 16 bytes looked up by the low or the high nibble of each byte: four copies, so that the permute's two
// other index bits do not matter.
struct NibbleTable {
    __m512i table;
    explicit NibbleTable(const uint8_t* codes) : table(every_lane(codes).v) {}
    Bytes64 low(Bytes64 x) const { return {_mm512_permutexvar_epi8(x.v, table)}; }
    Bytes64 high(Bytes64 x) const { return low(right<4>(x)); }
};

// fp16 numbers at the start of 16 blocks of `stride` bytes.
template <int stride>
static inline Floats16 near_halves(const uint8_t* b) {
    static constexpr Constant64 index([](int i) {
        const int word = i / 2;  // words 0 .. 7 from two loads; the next eight in the same way, for the second pair
        return i % 2 ? 0 : word % 8 / 4 * 32 + word % 4 * stride / 2;
    });
    static_assert(stride <= 20, "four of them lie within 64 bytes");
    auto four = [&](int m) { return _mm512_loadu_si512(b + 4 * stride * m); };
    const __m512i low = _mm512_permutex2var_epi16(four(0), index.load(), four(1));
    const __m512i high = _mm512_permutex2var_epi16(four(2), index.load(), four(3));
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_mask_blend_epi16(0xff00, low, high)))};
}

// Bytes at the start of 16 blocks of 17 bytes, as exponents: e8m0_to_half_float of each.
static inline Floats16 exponents17(const uint8_t* b) {
    static constexpr Constant64 index([](int i) { return i % 8 / 4 * 64 + i % 4 * 17; });
    auto four = [&](int m) { return _mm512_loadu_si512(b + 68 * m); };
    const __m512i low = _mm512_permutex2var_epi8(four(0), index.load(), four(1));
    const __m512i high = _mm512_permutex2var_epi8(four(2), index.load(), four(3));
    const __m512i e = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(_mm512_mask_blend_epi8(0xff00, low, high)));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    return {_mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), e))};
}

// The fp16 number at b, 16 times.
static inline Floats16 every_half(const uint8_t* b) {
    return {_mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(read16(b))))};
}

// Of every byte x: 3 x without its carry, and that carry.
static inline Bytes64 tripled(Bytes64 x) { return {_mm512_add_epi8(x.v, _mm512_add_epi8(x.v, x.v))}; }
static inline Bytes64 thirds(Bytes64 x) {
    const __m512i one = _mm512_set1_epi8(1);
    const __m512i at_least_one = _mm512_maskz_mov_epi8(_mm512_cmpge_epu8_mask(x.v, _mm512_set1_epi8(86)), one);
    const __mmask64 two = _mm512_cmpge_epu8_mask(x.v, _mm512_set1_epi8(static_cast<char>(171)));
    return {_mm512_mask_add_epi8(at_least_one, two, at_least_one, one)};
}

// Q4_K and Q5_K: nibbles of two blocks. A chunk of 32 bytes holds two sub-blocks, one per nibble; eight bytes of every
// chunk make two steps: word 2 c + n of a step is nibble n of four bytes of chunk c.
template <class Emit>
static inline void emit_chunks(const uint8_t* p, const uint8_t* q, Emit emit) {
    static constexpr Constant64 windows([](int i) { return 8 * (i % 4) + i % 8 / 4 * 4; });
    const __m512i mask = _mm512_set1_epi8(15), later = _mm512_set1_epi8(32);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
        const __m512i first = _mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13);
        const __m512i index = _mm512_add_epi64(first, _mm512_set1_epi64(2 * half));
        const __m512i a = _mm512_permutex2var_epi64(_mm512_loadu_si512(p), index, _mm512_loadu_si512(p + 64));
        const __m512i c = _mm512_permutex2var_epi64(_mm512_loadu_si512(q), index, _mm512_loadu_si512(q + 64));
        const __m512i eight[2] = {_mm512_shuffle_i64x2(a, c, 0x44), _mm512_shuffle_i64x2(a, c, 0xee)};
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            const __m512i low = _mm512_multishift_epi64_epi8(windows.load(), eight[i]);
            const __m512i high = _mm512_multishift_epi64_epi8(_mm512_add_epi8(windows.load(), later), eight[i]);
            emit(4 * half + 2 * i, Bytes64{_mm512_and_si512(low, mask)});
            emit(4 * half + 2 * i + 1, Bytes64{_mm512_and_si512(high, mask)});
        }
    }
}

// Q5_K: the fifth bits of two blocks, a byte per value of a sub-block with a bit per sub-block: bit 4 of step j's
// bytes.
class ChunkFifths {
public:
    ChunkFifths(const uint8_t* p, const uint8_t* q)
        : bits_(_mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
                                   _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q)), 1)) {}
    Bytes64 add(int step, Bytes64 codes) const {
        static constexpr Constant64 windows([](int i) { return (8 * (i % 4) + i / 4 % 8 - 4) & 63; });
        const __m512i index = _mm512_add_epi64(_mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4), _mm512_set1_epi64(step / 2));
        const __m512i where = _mm512_add_epi8(windows.load(), _mm512_set1_epi8(step % 2 ? 32 : 0));
        const __m512i here = _mm512_multishift_epi64_epi8(where, _mm512_permutexvar_epi64(index, bits_));
        return {_mm512_ternarylogic_epi64(codes.v, here, _mm512_set1_epi8(16), 0xf8)};  // codes | here & 16
    }

private:
    __m512i bits_;
};

// Eight 6-bit scales and minima of each of two blocks of Q4_K or Q5_K, at p and q with d and dmin before them.
struct KScales {
    __m256i small;   // 16 scales, 16 minima
    __m512 factors;  // float 0: d of p, 1: dmin of p, 8 and 9: of q
    KScales(const uint8_t* p, const uint8_t* q) {
        const __m256i both = _mm256_set_m128i(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q)),
                                              _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
        factors = _mm512_cvtph_ps(both);
        // Eight bytes: four of the first or second four, and the last four, which hold the later ones' low bits.
        const __m256i pairs = _mm256_permutevar8x32_epi32(both, _mm256_setr_epi32(1, 3, 5, 7, 2, 3, 6, 7));
        const __m256i low = _mm256_multishift_epi64_epi8(
            _mm256_setr_epi64x(0x3830282018100800, 0x3830282018100800, 0x3c342c2418100800, 0x3c342c2418100800), pairs);
        const __m256i high = _mm256_multishift_epi64_epi8(_mm256_set1_epi64x(0x1a120a0200000000), pairs);
        small = _mm256_ternarylogic_epi64(_mm256_and_si256(low, _mm256_set1_epi64x(0x0f0f0f0f3f3f3f3f)), high,
                                          _mm256_set1_epi64x(0x3030303000000000), 0xf8);
    }
    Floats16 times(__m128i numbers, int which) const {
        const __m512i index = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8),
                                               _mm512_set1_epi32(which));
        return {_mm512_mul_ps(_mm512_permutexvar_ps(index, factors), small_floats(numbers).v)};
    }
    Floats16 scales() const { return times(_mm256_castsi256_si128(small), 0); }
    Floats16 minima() const { return times(_mm256_extracti128_si256(small, 1), 1); }
};

// Q2_K, Q3_K and Q6_K: sub-block s = 4L + k is (half h = L / 2, bit pair g = 2 (L % 2) + k / 2, part e = k % 2) of the
// block. Of a byte of the layout:
constexpr int sub_of(int i) { return i / 4; }
constexpr int half_of(int i) { return sub_of(i) / 8; }
constexpr int pair_of(int i) { return sub_of(i) / 4 % 2 * 2 + sub_of(i) % 4 / 2; }
constexpr int part_of(int i) { return sub_of(i) % 2; }

// Bits 2 g and 2 g + 1 of 64 bytes as bits `at` and at + 1, other bits undefined.
template <int at>
static inline Bytes64 pairs_of(__m512i packed, int step) {
    static constexpr Constant64 windows([](int i) { return (low_bit(i) + 2 * pair_of(i) - at) & 63; });
    const __m512i word = _mm512_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4, 8, 12, 8, 12, 8, 12, 8, 12);
    const __m512i spread = _mm512_permutexvar_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(step)), packed);
    return {_mm512_multishift_epi64_epi8(windows.load(), spread)};
}

// Q2_K: 64 bytes of bit pairs, 32 for each half.
static inline Bytes64 crumbs(const uint8_t* packed, int step) {
    return {_mm512_and_si512(pairs_of<0>(_mm512_loadu_si512(packed), step).v, _mm512_set1_epi8(3))};
}
template <class Emit>
static inline void emit_crumbs(const uint8_t* packed, Emit emit) {
#pragma GCC unroll 4
    for (int step = 0; step < 4; ++step) emit(step, crumbs(packed, step));
}

// Q3_K: the same, with bit 4 h + g of 32 bytes as bit 2.
template <class Emit>
static inline void emit_crumbs_and_bits(const uint8_t* packed, const uint8_t* third, Emit emit) {
    static constexpr Constant64 windows([](int i) { return (low_bit(i) + 4 * half_of(i) + pair_of(i) - 2) & 63; });
    const __m512i word = _mm512_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4);
    const __m512i bits = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(third)));
#pragma GCC unroll 4
    for (int step = 0; step < 4; ++step) {
        const __m512i spread = _mm512_permutexvar_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(step)), bits);
        const __m512i here = _mm512_multishift_epi64_epi8(windows.load(), spread);
        emit(step, Bytes64{_mm512_ternarylogic_epi64(crumbs(packed, step).v, here, _mm512_set1_epi8(4), 0xf8)});
    }
}

// Q6_K: 128 bytes of nibbles (64 per half: of pairs 0 and 1 the low ones, of 2 and 3 the high ones), 64 of bit pairs.
template <class Emit>
static inline void emit_nibbles_and_pairs(const uint8_t* packed, const uint8_t* high, Emit emit) {
    static constexpr Constant64 windows([](int i) { return low_bit(i) + pair_of(i) / 2 * 4; });
    const __m512i word = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 16, 20, 24, 28, 16, 20, 24, 28);
    const __m512i first = _mm512_loadu_si512(packed), second = _mm512_loadu_si512(packed + 64);
#pragma GCC unroll 4
    for (int step = 0; step < 4; ++step) {
        const __m512i spread =
            _mm512_permutex2var_epi32(first, _mm512_add_epi32(word, _mm512_set1_epi32(step)), second);
        const __m512i nibbles = _mm512_multishift_epi64_epi8(windows.load(), spread);
        const __m512i low = _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
        const __m512i top = pairs_of<4>(_mm512_loadu_si512(high), step).v;
        emit(step, Bytes64{_mm512_ternarylogic_epi64(low, top, _mm512_set1_epi8(48), 0xf8)});  // low | top & 48
    }
}

}  // namespace strata::STRATA_ISA
#endif
