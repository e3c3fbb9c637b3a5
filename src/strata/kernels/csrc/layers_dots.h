// Dots of up to three queries with W keys by the lane rule, W results to a vector: as many accumulators as the
// registers hold (24 of 32 with AVX-512), so that every loaded vector is used several times.
#pragma once

#include "layers_simd.h"

namespace strata::STRATA_ISA {

constexpr int kQueries = 3;        // queries that share a loaded key
constexpr int kFoldKeys = W / 4;   // keys that one vector holds after fold_keys
constexpr int kHalves = kParts / 2;

// A loaded vector that stays in a register: left alone, GCC loads it again for every use, and loads are what limits.
STRATA_INLINE V held(V a) {
#if defined(STRATA_AVX512)
    __asm__("" : "+v"(a));
#elif defined(STRATA_AVX2)
    __asm__("" : "+x"(a));
#endif
    return a;
}

// fold_total's first steps for keys that end up in one vector, four partial sums each.
STRATA_INLINE V fold_keys(const V* folded) {
#if defined(STRATA_AVX512)
    auto eight = [](V x, V y) { return vadd(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xEE)); };
    const V a = eight(folded[0], folded[1]), b = eight(folded[2], folded[3]);
    return vadd(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
#elif defined(STRATA_AVX2)
    return vadd(_mm256_permute2f128_ps(folded[0], folded[1], 0x20), _mm256_permute2f128_ps(folded[0], folded[1], 0x31));
#else
    V r;
    for (int i = 0; i < W; ++i) r.v[i] = folded[i / 4].v[i % 4] + folded[i / 4].v[i % 4 + 4];
    return r;
#endif
}

// The last two steps: vector m holds the keys m, m + 4, ...; result i is key i's.
STRATA_INLINE V fold_quads(V q0, V q1, V q2, V q3) {
#if defined(STRATA_AVX512)
    const V a = vadd(_mm512_shuffle_ps(q0, q1, 0x44), _mm512_shuffle_ps(q0, q1, 0xEE));
    const V b = vadd(_mm512_shuffle_ps(q2, q3, 0x44), _mm512_shuffle_ps(q2, q3, 0xEE));
    return vadd(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
#elif defined(STRATA_AVX2)
    const V a = vadd(_mm256_shuffle_ps(q0, q1, 0x44), _mm256_shuffle_ps(q0, q1, 0xEE));
    const V b = vadd(_mm256_shuffle_ps(q2, q3, 0x44), _mm256_shuffle_ps(q2, q3, 0xEE));
    return vadd(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD));
#else
    const V* quads[4] = {&q0, &q1, &q2, &q3};
    V r;
    for (int i = 0; i < W; ++i) {
        const float* x = quads[i % 4]->v + i / 4 * 4;
        r.v[i] = (x[0] + x[2]) + (x[1] + x[3]);
    }
    return r;
#endif
}

// Q queries with the keys offset[0], offset[4], ... of one quad.
template <int Q>
STRATA_INLINE void quad_dots(const float* const* query, const float* base, const int64_t* offset, int64_t dim,
                             V* quad) {
    V folded[Q][kFoldKeys];
#pragma GCC unroll 4
    for (int half = 0; half < kHalves; ++half) {
        V acc[Q][kFoldKeys][2];
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q)
#pragma GCC unroll 4
            for (int k = 0; k < kFoldKeys; ++k) acc[q][k][0] = acc[q][k][1] = vzero();
        for (int64_t c = half * W; c < dim; c += kLanes)
#pragma GCC unroll 4
            for (int s = 0; s < 2; ++s) {
                V key[kFoldKeys];
#pragma GCC unroll 4
                for (int k = 0; k < kFoldKeys; ++k) key[k] = held(vload(base + offset[4 * k] + c + s * kHalves * W));
#pragma GCC unroll 4
                for (int q = 0; q < Q; ++q) {
                    const V x = vload(query[q] + c + s * kHalves * W);
#pragma GCC unroll 4
                    for (int k = 0; k < kFoldKeys; ++k) acc[q][k][s] = vfma(x, key[k], acc[q][k][s]);
                }
            }
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q)
#pragma GCC unroll 4
            for (int k = 0; k < kFoldKeys; ++k) {
                const V sum = vadd(acc[q][k][0], acc[q][k][1]);
                folded[q][k] = half ? vadd(folded[q][k], sum) : sum;
            }
    }
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) quad[q] = fold_keys(folded[q]);
}

// out[q] = dots of query q with the W keys at base + offset[i]; `beside()` runs four times, between quads.
template <int Q, class F>
STRATA_INLINE void key_dots(const float* const* query, const float* base, const int64_t* offset, int64_t dim, V* out,
                            const F& beside) {
    if (dim % kLanes) {
        for (int q = 0; q < Q; ++q) {
            float dots[W];
            for (int i = 0; i < W; ++i) dots[i] = lane_dot(query[q], base + offset[i], dim);
            out[q] = vload(dots);
        }
        return;
    }
    V quad[4][Q];
    for (int m = 0; m < 4; ++m) {
        beside();
        quad_dots<Q>(query, base, offset + m, dim, quad[m]);
    }
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) out[q] = fold_quads(quad[0][q], quad[1][q], quad[2][q], quad[3][q]);
}

}  // namespace strata::STRATA_ISA
