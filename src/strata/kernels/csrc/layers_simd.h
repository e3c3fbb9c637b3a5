// A vector of floats as wide as the variant's registers, and the lane rule on it (docs/numerics.md; norm/naive.py
// states it): 32 lanes, lane l takes the elements l, l + 32, ..., then the tree l + 16, + 8, + 4, + 2, + 1.
// Every operation rounds like its scalar twin, so the width never shows in a result.
#pragma once

#include <stdint.h>
#include <string.h>

#include "dispatch.h"

#ifdef STRATA_AVX2
// GCC 12 warns about its own "undefined" register values once they are inlined.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#ifndef STRATA_INLINE
#define STRATA_INLINE static inline __attribute__((always_inline))
#endif

namespace strata::STRATA_ISA {

#if defined(STRATA_AVX512)
using V = __m512;
constexpr int W = 16;
STRATA_INLINE V vzero() { return _mm512_setzero_ps(); }
STRATA_INLINE V vset(float x) { return _mm512_set1_ps(x); }
STRATA_INLINE V vload(const float* p) { return _mm512_loadu_ps(p); }
STRATA_INLINE void vstore(float* p, V a) { _mm512_storeu_ps(p, a); }
STRATA_INLINE V vadd(V a, V b) { return _mm512_add_ps(a, b); }
STRATA_INLINE V vsub(V a, V b) { return _mm512_sub_ps(a, b); }
STRATA_INLINE V vmul(V a, V b) { return _mm512_mul_ps(a, b); }
STRATA_INLINE V vdiv(V a, V b) { return _mm512_div_ps(a, b); }
STRATA_INLINE V vmax(V a, V b) { return _mm512_max_ps(a, b); }
STRATA_INLINE V vfma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(STRATA_AVX2)
using V = __m256;
constexpr int W = 8;
STRATA_INLINE V vzero() { return _mm256_setzero_ps(); }
STRATA_INLINE V vset(float x) { return _mm256_set1_ps(x); }
STRATA_INLINE V vload(const float* p) { return _mm256_loadu_ps(p); }
STRATA_INLINE void vstore(float* p, V a) { _mm256_storeu_ps(p, a); }
STRATA_INLINE V vadd(V a, V b) { return _mm256_add_ps(a, b); }
STRATA_INLINE V vsub(V a, V b) { return _mm256_sub_ps(a, b); }
STRATA_INLINE V vmul(V a, V b) { return _mm256_mul_ps(a, b); }
STRATA_INLINE V vdiv(V a, V b) { return _mm256_div_ps(a, b); }
STRATA_INLINE V vmax(V a, V b) { return _mm256_max_ps(a, b); }
STRATA_INLINE V vfma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
#else
constexpr int W = 8;
struct V {
    float v[W];
};
#define STRATA_EACH(expression)                       \
    V r;                                              \
    for (int i = 0; i < W; ++i) r.v[i] = (expression); \
    return r;
STRATA_INLINE V vzero() { STRATA_EACH(0.0f) }
STRATA_INLINE V vset(float x) { STRATA_EACH(x) }
STRATA_INLINE V vload(const float* p) { STRATA_EACH(p[i]) }
STRATA_INLINE void vstore(float* p, V a) { memcpy(p, a.v, sizeof a.v); }
STRATA_INLINE V vadd(V a, V b) { STRATA_EACH(a.v[i] + b.v[i]) }
STRATA_INLINE V vsub(V a, V b) { STRATA_EACH(a.v[i] - b.v[i]) }
STRATA_INLINE V vmul(V a, V b) { STRATA_EACH(a.v[i] * b.v[i]) }
STRATA_INLINE V vdiv(V a, V b) { STRATA_EACH(a.v[i] / b.v[i]) }
STRATA_INLINE V vmax(V a, V b) { STRATA_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]) }
STRATA_INLINE V vfma(V a, V b, V c) { STRATA_EACH(__builtin_fmaf(a.v[i], b.v[i], c.v[i])) }
#undef STRATA_EACH
#endif

constexpr int kLanes = 32;
constexpr int kParts = kLanes / W;  // vectors that hold the 32 lanes

struct Lanes {
    V part[kParts];
};

STRATA_INLINE Lanes lanes_zero() {
    Lanes lanes;
    for (int p = 0; p < kParts; ++p) lanes.part[p] = vzero();
    return lanes;
}

STRATA_INLINE void lanes_fma(Lanes& lanes, const float* a, const float* b) {
    for (int p = 0; p < kParts; ++p) lanes.part[p] = vfma(vload(a + p * W), vload(b + p * W), lanes.part[p]);
}

// The tree down to one vector: lane l + 16 on l and, where a vector has 8 lanes, l + 8 on l.
STRATA_INLINE V lanes_fold(const Lanes& lanes) {
    if constexpr (kParts == 2)
        return vadd(lanes.part[0], lanes.part[1]);
    else
        return vadd(vadd(lanes.part[0], lanes.part[2]), vadd(lanes.part[1], lanes.part[3]));
}

// The rest of the tree, within one vector.
STRATA_INLINE float fold_total(V folded) {
#if defined(STRATA_AVX2)
#if defined(STRATA_AVX512)
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(folded), _mm512_extractf32x8_ps(folded, 1));
#else
    const __m256 eight = folded;
#endif
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
#else
    for (int half = W / 2; half; half /= 2)
        for (int i = 0; i < half; ++i) folded.v[i] += folded.v[i + half];
    return folded.v[0];
#endif
}

STRATA_INLINE float lanes_total(const Lanes& lanes) { return fold_total(lanes_fold(lanes)); }

// Dot product of n elements by the lane rule.
STRATA_INLINE float lane_dot(const float* a, const float* b, int64_t n) {
    Lanes lanes = lanes_zero();
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) lanes_fma(lanes, a + i, b + i);
    if (i < n) {  // lanes without an element keep their value
        float spilled[kLanes];
        for (int p = 0; p < kParts; ++p) vstore(spilled + p * W, lanes.part[p]);
        for (int l = 0; i < n; ++i, ++l) spilled[l] = __builtin_fmaf(a[i], b[i], spilled[l]);
        for (int p = 0; p < kParts; ++p) lanes.part[p] = vload(spilled + p * W);
    }
    return lanes_total(lanes);
}

// Sum of n elements: plain additions in the lanes.
STRATA_INLINE float lane_sum(const float* a, int64_t n) {
    Lanes lanes = lanes_zero();
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (int p = 0; p < kParts; ++p) lanes.part[p] = vadd(lanes.part[p], vload(a + i + p * W));
    if (i < n) {
        float spilled[kLanes];
        for (int p = 0; p < kParts; ++p) vstore(spilled + p * W, lanes.part[p]);
        for (int l = 0; i < n; ++i, ++l) spilled[l] = spilled[l] + a[i];
        for (int p = 0; p < kParts; ++p) lanes.part[p] = vload(spilled + p * W);
    }
    return lanes_total(lanes);
}

// The largest of n values; a NaN may or may not win (its exponential is NaN in either case). -inf when n is 0.
STRATA_INLINE float largest(const float* a, int64_t n) {
    float best = -__builtin_inff();
    int64_t i = 0;
    if (n >= W) {
        V top = vload(a);
        for (i = W; i + W <= n; i += W) top = vmax(top, vload(a + i));
        float spilled[W];
        vstore(spilled, top);
        for (int l = 0; l < W; ++l) best = spilled[l] > best ? spilled[l] : best;
    }
    for (; i < n; ++i) best = a[i] > best ? a[i] : best;
    return best;
}

// fold_total of W vectors at once, transposing on the way: half the additions of W single trees, the same ones per
// result.
STRATA_INLINE V fold_totals(const V* folded) {
#if defined(STRATA_AVX512)
    V eight[8], four[4], two[2];
    for (int i = 0; i < 8; ++i)
        eight[i] = vadd(_mm512_shuffle_f32x4(folded[2 * i], folded[2 * i + 1], 0x44),
                        _mm512_shuffle_f32x4(folded[2 * i], folded[2 * i + 1], 0xEE));
    for (int i = 0; i < 4; ++i)
        four[i] = vadd(_mm512_shuffle_f32x4(eight[2 * i], eight[2 * i + 1], 0x88),
                       _mm512_shuffle_f32x4(eight[2 * i], eight[2 * i + 1], 0xDD));
    for (int i = 0; i < 2; ++i)
        two[i] = vadd(_mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                      _mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0xEE));
    return vadd(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xDD));
#elif defined(STRATA_AVX2)
    V four[4], two[2];
    for (int i = 0; i < 4; ++i)
        four[i] = vadd(_mm256_permute2f128_ps(folded[2 * i], folded[2 * i + 1], 0x20),
                       _mm256_permute2f128_ps(folded[2 * i], folded[2 * i + 1], 0x31));
    for (int i = 0; i < 2; ++i)
        two[i] = vadd(_mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                      _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0xEE));
    return vadd(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xDD));
#else
    V r;
    for (int i = 0; i < W; ++i) r.v[i] = fold_total(folded[i]);
    return r;
#endif
}

// Chunks to cut `units` equal pieces of work into: 1 (no fork) when all of it is under about 20 us.
// `work` counts floats touched or multiply-adds, whichever is larger.
STRATA_INLINE int chunks_for(int64_t units, int64_t work, int threads) {
    if (threads == 1 || work < 65536) return 1;
    const int64_t wanted = 4 * static_cast<int64_t>(threads);
    return static_cast<int>(units < wanted ? units : wanted);
}

// First unit of a chunk when `units` are spread evenly over `chunks`.
STRATA_INLINE int64_t chunk_begin(int64_t units, int chunks, int chunk) { return units * chunk / chunks; }

}  // namespace strata::STRATA_ISA
