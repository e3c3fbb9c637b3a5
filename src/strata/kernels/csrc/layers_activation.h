// activation.h on vectors: every step rounds like its scalar twin, so a result does not show which form made it.
#pragma once

#include "layers_simd.h"
// After layers_simd.h, whose STRATA_INLINE it uses.
#include "activation.h"

namespace strata::STRATA_ISA {

#if defined(STRATA_AVX2)

#if defined(STRATA_AVX512)
STRATA_INLINE V vround(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
STRATA_INLINE V vabs(V x) { return _mm512_abs_ps(x); }
STRATA_INLINE V vnegative(V x) { return _mm512_xor_ps(x, vset(-0.0f)); }
STRATA_INLINE V vmin(V a, V b) { return _mm512_min_ps(a, b); }
// x > limit ? a : b
STRATA_INLINE V vabove(V x, V limit, V a, V b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GT_OQ), b, a);
}
// p * 2^n, rounded once: the same as by two powers of two, since the first product is exact.
STRATA_INLINE V vscale(V p, V n) { return _mm512_scalef_ps(p, n); }
#else
STRATA_INLINE V vround(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
STRATA_INLINE V vabs(V x) { return _mm256_andnot_ps(vset(-0.0f), x); }
STRATA_INLINE V vnegative(V x) { return _mm256_xor_ps(x, vset(-0.0f)); }
STRATA_INLINE V vmin(V a, V b) { return _mm256_min_ps(a, b); }
STRATA_INLINE V vabove(V x, V limit, V a, V b) { return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, limit, _CMP_GT_OQ)); }
STRATA_INLINE V vscale(V p, V n) {
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), one = _mm256_set1_epi32(127);
    const __m256i rest = _mm256_sub_epi32(whole, half);
    p = vmul(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23)));
    return vmul(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, one), 23)));
}
#endif

// Beyond the limits the result is that of the limit: exp(89) overflows to infinity, exp(-104) rounds to 0. The order
// of the operands lets a NaN pass.
STRATA_INLINE V vexp(V x) {
    const V inside = vmin(vset(89.0f), vmax(vset(-104.0f), x));
    const V n = vround(vmul(inside, vset(1.442695f))), minus = vnegative(n);
    V r = vfma(minus, vset(0.6931472f), inside);
    r = vfma(minus, vset(-1.9046542e-09f), r);
    V p = vfma(vset(0.0013814599f), r, vset(0.008368717f));
    p = vfma(p, r, vset(0.04166839f));
    p = vfma(p, r, vset(0.16666521f));
    p = vfma(p, r, vset(0.49999994f));
    p = vfma(p, r, vset(1.0f));
    p = vfma(p, r, vset(1.0f));
    return vscale(p, n);
}

STRATA_INLINE V vsigmoid(V x) { return vdiv(vset(1.0f), vadd(vset(1.0f), vexp(vnegative(x)))); }

STRATA_INLINE V vsilu(V x) { return vmul(x, vsigmoid(x)); }

STRATA_INLINE V vsoftplus(V x) {
    const V e = vexp(vnegative(vabs(x)));
    const V s = vdiv(e, vadd(vset(2.0f), e)), t = vmul(s, s);
    V p = vfma(vset(0.28011996f), t, vset(0.28001803f));
    p = vfma(p, t, vset(0.40021527f));
    p = vfma(p, t, vset(0.6666642f));
    const V log1p = vfma(vmul(s, t), p, vmul(vset(2.0f), s));
    return vabove(x, vset(20.0f), x, vadd(vabove(x, vzero(), x, vzero()), log1p));
}

#else

#define STRATA_EACH(expression)                        \
    V r;                                               \
    for (int i = 0; i < W; ++i) r.v[i] = (expression); \
    return r;
STRATA_INLINE V vexp(V x) { STRATA_EACH(shared_exp(x.v[i])) }
STRATA_INLINE V vsigmoid(V x) { STRATA_EACH(sigmoid(x.v[i])) }
STRATA_INLINE V vsilu(V x) { STRATA_EACH(silu(x.v[i])) }
STRATA_INLINE V vsoftplus(V x) { STRATA_EACH(softplus(x.v[i])) }
#undef STRATA_EACH

#endif

}  // namespace strata::STRATA_ISA
