// 64 bytes as one value: a ZMM register, or two YMM registers. What the block decoders need, and no more.
// A "lane" here is 16 bytes; shifts work on 16-bit units, so a mask follows them.
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
static inline Bytes64 low32(Bytes64 a, Bytes64 b) { return {_mm512_unpacklo_epi32(a.v, b.v)}; }
static inline Bytes64 high32(Bytes64 a, Bytes64 b) { return {_mm512_unpackhi_epi32(a.v, b.v)}; }
static inline Bytes64 low64(Bytes64 a, Bytes64 b) { return {_mm512_unpacklo_epi64(a.v, b.v)}; }
static inline Bytes64 high64(Bytes64 a, Bytes64 b) { return {_mm512_unpackhi_epi64(a.v, b.v)}; }

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
STRATA_PAIRWISE(low32, _mm256_unpacklo_epi32)
STRATA_PAIRWISE(high32, _mm256_unpackhi_epi32)
STRATA_PAIRWISE(low64, _mm256_unpacklo_epi64)
STRATA_PAIRWISE(high64, _mm256_unpackhi_epi64)
#undef STRATA_PAIRWISE

#endif

// Lane L of the inputs holds 16 values of sub-blocks 4L, 4L + 1, 4L + 2, 4L + 3: stores four steps of the group layout.
static inline void store_steps(uint8_t* codes, Bytes64 a, Bytes64 b, Bytes64 c, Bytes64 d) {
    const Bytes64 ab0 = low32(a, b), ab1 = high32(a, b), cd0 = low32(c, d), cd1 = high32(c, d);
    store(codes, low64(ab0, cd0));
    store(codes + 64, high64(ab0, cd0));
    store(codes + 128, low64(ab1, cd1));
    store(codes + 192, high64(ab1, cd1));
}

// 16 small integers of one or two blocks as float32, times the blocks' scales: values 0 .. 7 by d0, the rest by d1.
// Everything stays in registers: a vector load of bytes just stored one by one would wait for them to reach the cache.
static inline void scale16(__m128i small, float d0, float d1, float* to) {
    const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(small));
    const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(small, small)));
    _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_set1_ps(d0), low));
    _mm256_storeu_ps(to + 8, _mm256_mul_ps(_mm256_set1_ps(d1), high));
}

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
