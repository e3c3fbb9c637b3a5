// The pieces of a block's softmax: shared exponentials of scores, sums of values weighted by them, and the merge of
// blocks; attention/naive.py states every rounding.
#pragma once

#include "layers_dots.h"
#include "layers_simd.h"
// After layers_simd.h, whose STRATA_INLINE it uses.
#include "activation.h"

namespace strata::STRATA_ISA {

// s[j] = exp(s[j] - top) for j < n; places up to the next multiple of 16 are written too.
STRATA_INLINE void exp_below(float* s, int64_t n, float top) {
#if defined(STRATA_AVX512)
    // As shared_exp, 13 instructions for 16 values: scalef rounds once, as its two products do. Nothing is above 0 here
    // unless a NaN hid the maximum, and then the whole head is NaN.
    const V high = vset(-0.6931472f), low = vset(1.9046542e-09f), subtract = vset(top);
    for (int64_t j = 0; j < n; j += W) {
        const V x = vsub(vload(s + j), subtract);
        const V whole = _mm512_roundscale_ps(vmul(x, vset(1.442695f)), 8);
        const V r = vfma(whole, low, vfma(whole, high, x));
        V p = vset(0.0013814599f);
        p = vfma(p, r, vset(0.008368717f));
        p = vfma(p, r, vset(0.04166839f));
        p = vfma(p, r, vset(0.16666521f));
        p = vfma(p, r, vset(0.49999994f));
        p = vfma(p, r, vset(1.0f));
        p = vfma(p, r, vset(1.0f));
        const __mmask16 seen = _mm512_cmp_ps_mask(x, vset(-104.0f), _CMP_NLT_UQ);
        vstore(s + j, _mm512_maskz_scalef_ps(seen, p, whole));
    }
#else
    for (int64_t j = 0; j < n; ++j) s[j] = shared_exp(s[j] - top);
#endif
}

// sum[q][c] = fma(e[q][j], value_j[c], sum[q][c]) for j0 <= j < j1 in order, N vectors of dims from c on while they
// fit; `beside()` runs once every 8 entries.
template <int Q, int N, class F>
STRATA_INLINE int64_t add_values(float* const* sum, const float* const* e, const float* base, const int64_t* offset,
                                 int64_t j0, int64_t j1, int64_t c, int64_t dim, const F& beside) {
    for (; c + N * W <= dim; c += N * W) {
        V acc[Q][N];
#pragma GCC unroll 8
        for (int q = 0; q < Q; ++q)
#pragma GCC unroll 8
            for (int i = 0; i < N; ++i) acc[q][i] = vload(sum[q] + c + i * W);
        for (int64_t j = j0; j < j1; ++j) {
            if (j % 8 == 0) beside();
            const float* value = base + offset[j] + c;
            V weight[Q];
#pragma GCC unroll 8
            for (int q = 0; q < Q; ++q) weight[q] = vset(e[q][j]);
#pragma GCC unroll 8
            for (int i = 0; i < N; ++i) {
                const V v = held(vload(value + i * W));
#pragma GCC unroll 8
                for (int q = 0; q < Q; ++q) acc[q][i] = vfma(weight[q], v, acc[q][i]);
            }
        }
#pragma GCC unroll 8
        for (int q = 0; q < Q; ++q)
#pragma GCC unroll 8
            for (int i = 0; i < N; ++i) vstore(sum[q] + c + i * W, acc[q][i]);
    }
    return c;
}

template <int Q, class F>
STRATA_INLINE void add_all_values(float* const* sum, const float* const* e, const float* base, const int64_t* offset,
                                  int64_t j0, int64_t j1, int64_t dim, const F& beside) {
    constexpr int kWide = W == 16 ? 8 : 4;  // 24 accumulators of 32 registers, or 12 of 16
    int64_t c = add_values<Q, kWide>(sum, e, base, offset, j0, j1, 0, dim, beside);
    c = add_values<Q, 1>(sum, e, base, offset, j0, j1, c, dim, beside);
    for (; c < dim; ++c)
        for (int q = 0; q < Q; ++q)
            for (int64_t j = j0; j < j1; ++j) sum[q][c] = __builtin_fmaf(e[q][j], base[offset[j] + c], sum[q][c]);
}

// The running maximum, sum and weighted sums of one query, joined by the next block's.
STRATA_INLINE void merge_block(float* top, float* total, float* out, float next_top, float next_total,
                               const float* next_sum, int64_t dim) {
    const float best = next_top > *top ? next_top : *top;
    const float keep = shared_exp(*top - best), add = shared_exp(next_top - best);
    *top = best;
    *total = __builtin_fmaf(next_total, add, *total * keep);
    int64_t c = 0;
    const V by = vset(keep), with = vset(add);
    for (; c + W <= dim; c += W) vstore(out + c, vfma(vload(next_sum + c), with, vmul(vload(out + c), by)));
    for (; c < dim; ++c) out[c] = __builtin_fmaf(next_sum[c], add, out[c] * keep);
}

}  // namespace strata::STRATA_ISA
