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

namespace strata::STRATA_ISA {

STRATA_GATED_NORM(silu, silu)
STRATA_GATED_NORM(sigmoid, sigmoid)
STRATA_GATED_NORM(softplus, softplus)
STRATA_GATED_NORM(exp, shared_exp)

}  // namespace strata::STRATA_ISA

#undef STRATA_GATED_NORM
