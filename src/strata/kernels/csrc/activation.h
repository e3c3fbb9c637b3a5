// exp, sigmoid, silu and softplus as written float operations: the C++ twin of kernels/activate/naive.py, whose
// docstring is the specification. Branch-free scalar functions: a plain loop over them vectorises, and gives the same
// bits in every variant (no contraction, no approximate instructions).
#pragma once

#include <math.h>

#include "numbers.h"

namespace strata::STRATA_ISA {

// Round half to even for |x| < 2^22, without the SSE4.1 instruction that the baseline lacks.
STRATA_INLINE float round_even(float x) { return (x + 12582912.0f) - 12582912.0f; }

STRATA_INLINE float power_of_two(int32_t n) { return float_of_bits(static_cast<uint32_t>(n + 127) << 23); }

STRATA_INLINE float shared_exp(float x) {
    const bool inside = x >= -104.0f && x <= 89.0f;
    const float safe = inside ? x : 0.0f;
    const float n = round_even(safe * 1.442695f);
    float r = fmaf(-n, 0.6931472f, safe);
    r = fmaf(-n, -1.9046542e-09f, r);
    float p = 0.0013814599f;
    p = fmaf(p, r, 0.008368717f);
    p = fmaf(p, r, 0.04166839f);
    p = fmaf(p, r, 0.16666521f);
    p = fmaf(p, r, 0.49999994f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    const int32_t whole = static_cast<int32_t>(n), half = whole >> 1;
    const float value = (p * power_of_two(half)) * power_of_two(whole - half);
    const float high = x > 89.0f ? float_of_bits(0x7f800000u) : x;
    const float outside = x < -104.0f ? 0.0f : high;
    return inside ? value : outside;
}

STRATA_INLINE float sigmoid(float x) { return 1.0f / (1.0f + shared_exp(-x)); }

STRATA_INLINE float silu(float x) { return x * sigmoid(x); }

STRATA_INLINE float softplus(float x) {
    const float e = shared_exp(-fabsf(x));
    const float s = e / (2.0f + e), t = s * s;
    float p = 0.28011996f;
    p = fmaf(p, t, 0.28001803f);
    p = fmaf(p, t, 0.40021527f);
    p = fmaf(p, t, 0.6666642f);
    const float log1p = fmaf(s * t, p, 2.0f * s);
    const float positive = x > 0.0f ? x : 0.0f;
    return x > 20.0f ? x : positive + log1p;
}

}  // namespace strata::STRATA_ISA
