// gated_norm: function(gate) * rms_norm(x), the norm of each group of values by 32 lanes; bits as norm/naive.py.
#pragma once

#include "norm_rows.h"

namespace strata::STRATA_ISA {
constexpr int kGatedThreads = 128;
}

// x [groups, n]; gate, y [rows, cols], the same values in rows of cols / n groups; y is also quantised where that is
// wanted.
#define STRATA_GATED_NORM(kind, function)                                                                              \
    STRATA_KERNEL_OF(kGatedThreads, gated_norm_##kind,                                                                 \
                  (const float* x, const float* weight, const float* gate, float* y, uint8_t* by32, uint8_t* by16,     \
                   int64_t groups, int64_t n, int64_t weight_len, int64_t cols, float eps)) {                          \
        SHARED(float, made, kGatedThreads * kNarrowHeld);                                                              \
        const int64_t group = row_of_group();                                                                          \
        const bool on = group < groups; /* or not, a whole group of lanes */                                           \
        const float *in = x + group * n, *opened = gate + group * n;                                                   \
        const float* w = on ? weights_of_row(weight, weight_len, group, n) : nullptr;                                  \
        HeldValues<kNarrowHeld> values;                                                                                \
        ask(values, in, w, lane(), 32, on ? n : 0);                                                                \
        if (!on) return;                                                                                               \
        float gates[kNarrowHeld];                                                                                      \
        UNROLL                                                                                                         \
        for (int k = 0; k < kNarrowHeld; ++k) gates[k] = lane() + 32 * k < n ? opened[lane() + 32 * k] : 0.0f;         \
        const float r = narrow_factor(values, in, n, eps);                                                             \
        const int each = static_cast<int>(cols / n), row = static_cast<int>(group) / each;                             \
        const int64_t start = (group - static_cast<int64_t>(row) * each) * n;                                          \
        const Beside beside = {by32, by16, cols};                                                                      \
        float* const mine = made + warp() * 32 * kNarrowHeld; /* a lane reads what it has written itself */            \
        UNROLL                                                                                                         \
        for (int k = 0; k < kNarrowHeld; ++k) {                                                                        \
            const int i = lane() + 32 * k;                                                                             \
            if (i < n) y[group * n + i] = mine[i] = function(gates[k]) * ((values.own[k] * r) * values.scale[k]);      \
        }                                                                                                              \
        KEEP_ROLLED /* short code: it is fetched anew for every launch */                                              \
        for (int i = lane(); i < static_cast<int>(n); i += 32) {                                                       \
            const bool held = i < 32 * kNarrowHeld;                                                                    \
            const float value = held ? mine[i] : function(opened[i]) * scaled(in[i], r, w, i);                         \
            if (!held) y[group * n + i] = value;                                                                       \
            beside.put(value, row, start + i);                                                                         \
        }                                                                                                              \
    }

// The same for the many rows of a prompt, which are not quantised, of n = 32, 64, .. 32 kNarrowHeld values.
#define STRATA_GATED_NORM_MANY(kind, function)                                                                         \
    STRATA_KERNEL_OF(kGatedThreads, gated_norm_many_##kind,                                                            \
                     (const float* x, const float* weight, const float* gate, float* y, int64_t groups, int64_t n,     \
                      int64_t weight_len, float eps)) {                                                                \
        const int64_t group = row_of_group(), first = group * n + lane();                                              \
        if (group >= groups) return;                                                                                   \
        const float* w = weights_of_row(weight, weight_len, group, n);                                                 \
        float own[kNarrowHeld], gates[kNarrowHeld], scale[kNarrowHeld];                                                \
        UNROLL                                                                                                         \
        for (int k = 0; k < kNarrowHeld; ++k) {                                                                        \
            const bool here = 32 * k < n;                                                                              \
            own[k] = here ? x[first + 32 * k] : 0.0f;                                                                  \
            gates[k] = here ? gate[first + 32 * k] : 0.0f;                                                             \
            scale[k] = here && w != nullptr ? w[lane() + 32 * k] : 1.0f;                                               \
        }                                                                                                              \
        float acc = 0.0f;                                                                                              \
        UNROLL                                                                                                         \
        for (int k = 0; k < kNarrowHeld; ++k)                                                                          \
            if (32 * k < n) acc = fma(own[k], own[k], acc);                                                            \
        const float r = reciprocal_root(lane_tree(acc) / static_cast<float>(n), eps);                                  \
        UNROLL                                                                                                         \
        for (int k = 0; k < kNarrowHeld; ++k)                                                                          \
            if (32 * k < n) y[first + 32 * k] = function(gates[k]) * ((own[k] * r) * scale[k]);                        \
    }

namespace strata::STRATA_ISA {

STRATA_GATED_NORM(silu, silu)
STRATA_GATED_NORM(sigmoid, sigmoid)
STRATA_GATED_NORM(softplus, softplus)
STRATA_GATED_NORM(exp, shared_exp)
STRATA_GATED_NORM_MANY(silu, silu)
STRATA_GATED_NORM_MANY(sigmoid, sigmoid)
STRATA_GATED_NORM_MANY(softplus, softplus)
STRATA_GATED_NORM_MANY(exp, shared_exp)

}  // namespace strata::STRATA_ISA

#undef STRATA_GATED_NORM
#undef STRATA_GATED_NORM_MANY
