// 64 bytes, 16 floats or 16 integers as one value: a ZMM register, or two YMM registers. What the block decoders and
// the products of few rows need, and no more. A "lane" of bytes is 16 bytes; shifts of bytes work on 16-bit units, so a
// mask follows them.
#pragma once

#include "dispatch.h"

#if STRATA_AVX2
#define STRATA_VECTOR 1
#include <immintrin.h>
#include <stdint.h>

namespace strata::STRATA_ISA {

#if STRATA_AVX512

struct Bytes64 {
    __m512i v;
};

static inline Bytes64 lanes(const uint8_t* a, const uint8_t* b, const uint8_t* c, const uint8_t* d) {
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a)));
    v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(c)), 2);
    return {_mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(d)), 3)};
}
static inline Bytes64 bytes_of(int value) { return {_mm512_set1_epi8(static_cast<char>(value))}; }
static inline Bytes64 every_lane(const void* table) {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(table)))};
}
static inline Bytes64 operator&(Bytes64 a, Bytes64 b) { return {_mm512_and_si512(a.v, b.v)}; }
static inline Bytes64 operator|(Bytes64 a, Bytes64 b) { return {_mm512_or_si512(a.v, b.v)}; }
static inline Bytes64 operator^(Bytes64 a, Bytes64 b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int n> static inline Bytes64 right(Bytes64 a) { return {_mm512_srli_epi16(a.v, n)}; }
template <int n> static inline Bytes64 left(Bytes64 a) { return {_mm512_slli_epi16(a.v, n)}; }
// Lanes 1 and 3 shifted right by n, lanes 0 and 2 as they are (32-bit units).
template <int n> static inline Bytes64 right_odd(Bytes64 a) {
    return {_mm512_srlv_epi32(a.v, _mm512_setr_epi32(0, 0, 0, 0, n, n, n, n, 0, 0, 0, 0, n, n, n, n))};
}
static inline Bytes64 look_up(Bytes64 table, Bytes64 index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }
static inline void store(uint8_t* to, Bytes64 a) { _mm512_storeu_si512(to, a.v); }
static inline Bytes64 low8(Bytes64 a, Bytes64 b) { return {_mm512_unpacklo_epi8(a.v, b.v)}; }
static inline Bytes64 high8(Bytes64 a, Bytes64 b) { return {_mm512_unpackhi_epi8(a.v, b.v)}; }
static inline Bytes64 low32(Bytes64 a, Bytes64 b) { return {_mm512_unpacklo_epi32(a.v, b.v)}; }
static inline Bytes64 high32(Bytes64 a, Bytes64 b) { return {_mm512_unpackhi_epi32(a.v, b.v)}; }
static inline Bytes64 low64(Bytes64 a, Bytes64 b) { return {_mm512_unpacklo_epi64(a.v, b.v)}; }
static inline Bytes64 high64(Bytes64 a, Bytes64 b) { return {_mm512_unpackhi_epi64(a.v, b.v)}; }
static inline Bytes64 load64(const void* from) { return {_mm512_loadu_si512(from)}; }

// Bit 4 step + i of the 32 bits of every word as bit `at` of its byte i; the other bits are zero.
template <int at>
static inline Bytes64 four_bits(Bytes64 words, int step) {
    const __m512i first = _mm512_set1_epi64(0x2322212003020100);
    const __m512i windows = _mm512_add_epi8(first, _mm512_set1_epi8(static_cast<char>(4 * step - at)));
    return {_mm512_and_si512(_mm512_multishift_epi64_epi8(windows, words.v), _mm512_set1_epi8(1 << at))};
}
// Word s is word(s).
template <class Word>
static inline Bytes64 words16(Word word) {
    const __m128i a = _mm_setr_epi32(word(0), word(1), word(2), word(3)),
                  b = _mm_setr_epi32(word(4), word(5), word(6), word(7));
    const __m128i c = _mm_setr_epi32(word(8), word(9), word(10), word(11));
    const __m128i d = _mm_setr_epi32(word(12), word(13), word(14), word(15));
    return {_mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(b, a)), _mm256_set_m128i(d, c), 1)};
}

struct Floats16 {
    __m512 v;
};
struct Ints16 {
    __m512i v;
};

static inline Floats16 load_floats(const float* from) { return {_mm512_loadu_ps(from)}; }
static inline Ints16 load_ints(const int32_t* from) { return {_mm512_loadu_si512(from)}; }
static inline void store(float* to, Floats16 a) { _mm512_storeu_ps(to, a.v); }
static inline void store(int32_t* to, Ints16 a) { _mm512_storeu_si512(to, a.v); }
// acc + codes * q for every four bytes of a step. `wide`: codes use all eight bits and have the offset 128, which AVX2
// takes off; signed_codes says so.
template <bool wide>
static inline Ints16 dot4(Ints16 acc, Bytes64 codes, const int8_t* q) {
    return {_mm512_dpbusd_epi32(acc.v, codes.v, _mm512_loadu_si512(q))};
}
static constexpr bool signed_codes = false;
static inline Floats16 floats_of_bits(Bytes64 a) { return {_mm512_castsi512_ps(a.v)}; }
static inline Floats16 no_floats() { return {_mm512_setzero_ps()}; }
static inline Ints16 no_ints() { return {_mm512_setzero_si512()}; }
static inline Floats16 operator*(Floats16 a, Floats16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline Floats16 operator-(Floats16 a) {
    return {_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(INT32_MIN)))};
}
static inline Ints16 operator-(Ints16 a, Ints16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
static inline Ints16 operator*(Ints16 a, int by) { return {_mm512_mullo_epi32(a.v, _mm512_set1_epi32(by))}; }
template <int n> static inline Ints16 left(Ints16 a) { return {_mm512_slli_epi32(a.v, n)}; }
static inline Floats16 floats_of(Ints16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
// a * b + c and -(a * b) + c, rounded once.
static inline Floats16 fused(Floats16 a, Floats16 b, Floats16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
static inline Floats16 minus_fused(Floats16 a, Floats16 b, Floats16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
static inline Floats16 small_floats(__m128i bytes) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))}; }
// The first eight values, then the last eight.
static inline Floats16 two_floats(float low, float high) {
    return {_mm512_mask_blend_ps(0xff00, _mm512_set1_ps(low), _mm512_set1_ps(high))};
}
static inline Floats16 from_halves(__m128i low, __m128i high) { return {_mm512_cvtph_ps(_mm256_set_m128i(high, low))}; }

#else

struct Bytes64 {
    __m256i a, b;
};

static inline Bytes64 lanes(const uint8_t* a, const uint8_t* b, const uint8_t* c, const uint8_t* d) {
    return {_mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(b), reinterpret_cast<const __m128i*>(a)),
            _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(d), reinterpret_cast<const __m128i*>(c))};
}
static inline Bytes64 bytes_of(int value) {
    const __m256i v = _mm256_set1_epi8(static_cast<char>(value));
    return {v, v};
}
static inline Bytes64 every_lane(const void* table) {
    const __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(table)));
    return {v, v};
}
static inline Bytes64 operator&(Bytes64 x, Bytes64 y) {
    return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
static inline Bytes64 operator|(Bytes64 x, Bytes64 y) {
    return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
static inline Bytes64 operator^(Bytes64 x, Bytes64 y) {
    return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
template <int n> static inline Bytes64 right(Bytes64 x) {
    return {_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
}
template <int n> static inline Bytes64 left(Bytes64 x) {
    return {_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)};
}
template <int n> static inline Bytes64 right_odd(Bytes64 x) {
    const __m256i by = _mm256_setr_epi32(0, 0, 0, 0, n, n, n, n);
    return {_mm256_srlv_epi32(x.a, by), _mm256_srlv_epi32(x.b, by)};
}
static inline Bytes64 look_up(Bytes64 table, Bytes64 index) {
    return {_mm256_shuffle_epi8(table.a, index.a), _mm256_shuffle_epi8(table.b, index.b)};
}
static inline void store(uint8_t* to, Bytes64 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), x.b);
}
#define STRATA_PAIRWISE(name, op) \
    static inline Bytes64 name(Bytes64 x, Bytes64 y) { return {op(x.a, y.a), op(x.b, y.b)}; }
STRATA_PAIRWISE(low8, _mm256_unpacklo_epi8)
STRATA_PAIRWISE(high8, _mm256_unpackhi_epi8)
STRATA_PAIRWISE(low32, _mm256_unpacklo_epi32)
STRATA_PAIRWISE(high32, _mm256_unpackhi_epi32)
STRATA_PAIRWISE(low64, _mm256_unpacklo_epi64)
STRATA_PAIRWISE(high64, _mm256_unpackhi_epi64)
#undef STRATA_PAIRWISE
static inline Bytes64 load64(const void* from) {
    const __m256i* at = static_cast<const __m256i*>(from);
    return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}

// Bit 4 step + i of the 32 bits of every word as bit `at` of its byte i; the other bits are zero.
template <int at>
static inline Bytes64 four_bits(Bytes64 words, int step) {
    const __m256i byte = _mm256_set1_epi8(static_cast<char>(step / 2));
    const __m256i index = _mm256_add_epi8(_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8,
                                                                                   12, 12, 12, 12)), byte);
    const __m256i bit = _mm256_set1_epi32(step % 2 ? static_cast<int>(0x80402010) : 0x08040201);
    const __m256i one = _mm256_set1_epi8(1 << at);
    auto half = [&](__m256i v) {
        return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(v, index), bit), bit), one);
    };
    return {half(words.a), half(words.b)};
}
// Word s is word(s).
template <class Word>
static inline Bytes64 words16(Word word) {
    return {_mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7)),
            _mm256_setr_epi32(word(8), word(9), word(10), word(11), word(12), word(13), word(14), word(15))};
}

struct Floats16 {
    __m256 a, b;
};
struct Ints16 {
    __m256i a, b;
};

static inline Floats16 load_floats(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
static inline Ints16 load_ints(const int32_t* from) {
    const Bytes64 bytes = load64(from);
    return {bytes.a, bytes.b};
}
static inline void store(float* to, Floats16 x) {
    _mm256_storeu_ps(to, x.a);
    _mm256_storeu_ps(to + 8, x.b);
}
static inline void store(int32_t* to, Ints16 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), x.b);
}
// acc + codes * q for every four bytes of a step. Codes up to 127 go through maddubs as they are (127 * 127 * 2 <
// 2^15); `wide` ones, which have the offset 128, as signed numbers: |w| * (q with w's sign).
template <bool wide>
static inline __m256i dot4(__m256i acc, __m256i w, __m256i q) {
    if (wide) {
        w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
        q = _mm256_sign_epi8(q, w);
        w = _mm256_abs_epi8(w);
    }
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, q), _mm256_set1_epi16(1)));
}
template <bool wide>
static inline Ints16 dot4(Ints16 acc, Bytes64 codes, const int8_t* q) {
    const Bytes64 x = load64(q);
    return {dot4<wide>(acc.a, codes.a, x.a), dot4<wide>(acc.b, codes.b, x.b)};
}
static constexpr bool signed_codes = true;
static inline Floats16 floats_of_bits(Bytes64 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
static inline Floats16 no_floats() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline Ints16 no_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline Floats16 operator*(Floats16 x, Floats16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline Floats16 operator-(Floats16 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}
static inline Ints16 operator-(Ints16 x, Ints16 y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
static inline Ints16 operator*(Ints16 x, int by) {
    const __m256i v = _mm256_set1_epi32(by);
    return {_mm256_mullo_epi32(x.a, v), _mm256_mullo_epi32(x.b, v)};
}
template <int n> static inline Ints16 left(Ints16 x) {
    return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
static inline Floats16 floats_of(Ints16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
// a * b + c and -(a * b) + c, rounded once.
static inline Floats16 fused(Floats16 x, Floats16 y, Floats16 z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline Floats16 minus_fused(Floats16 x, Floats16 y, Floats16 z) {
    return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
static inline Floats16 small_floats(__m128i bytes) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
}
static inline Floats16 two_floats(float low, float high) { return {_mm256_set1_ps(low), _mm256_set1_ps(high)}; }
static inline Floats16 from_halves(__m128i low, __m128i high) {
    return {_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)};
}
#endif

// Lane L of the inputs holds 16 values of sub-blocks 4L, 4L + 1, 4L + 2, 4L + 3: emits steps first .. first + 3 of the
// group layout.
template <class Emit>
static inline void emit_steps(Emit emit, int first, Bytes64 a, Bytes64 b, Bytes64 c, Bytes64 d) {
    const Bytes64 ab0 = low32(a, b), ab1 = high32(a, b), cd0 = low32(c, d), cd1 = high32(c, d);
    emit(first, low64(ab0, cd0));
    emit(first + 1, high64(ab0, cd0));
    emit(first + 2, low64(ab1, cd1));
    emit(first + 3, high64(ab1, cd1));
}

static inline void store_steps(uint8_t* codes, Bytes64 a, Bytes64 b, Bytes64 c, Bytes64 d) {
    emit_steps([&](int step, Bytes64 v) { store(codes + 64 * step, v); }, 0, a, b, c, d);
}

// 16 small integers of one or two blocks as float32, times the blocks' scales: values 0 .. 7 by d0, the rest by d1.
// Everything stays in registers: a vector load of bytes just stored one by one would wait for them to reach the cache.
static inline Floats16 scaled16(__m128i small, float d0, float d1) { return two_floats(d0, d1) * small_floats(small); }
static inline void scale16(__m128i small, float d0, float d1, float* to) { store(to, scaled16(small, d0, d1)); }

static inline __m128i bytes16(uint64_t low, uint64_t high) {
    return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}

// The 16 nibbles of 8 bytes, low ones first, as bytes.
static inline __m128i nibbles16(const uint8_t* b) {
    const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b)), mask = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(packed, mask), _mm_and_si128(_mm_srli_epi16(packed, 4), mask));
}

}  // namespace strata::STRATA_ISA
#endif
