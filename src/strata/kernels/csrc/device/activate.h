// activate and gate: one thread an element; bits as activate/naive.py.
#pragma once

#include "device.h"

#include "../activation.h"

#define STRATA_ACTIVATION(kind, function)                                                       \
    STRATA_KERNEL(activate_##kind,                                                              \
                  (const float* x, float divisor, float factor, float* y, int64_t count)) {     \
        in_turn();                                                                              \
        const int64_t i = element();                                                            \
        if (i < count) y[i] = function(x[i] / divisor) * factor;                                \
    }                                                                                           \
    STRATA_KERNEL(gate_##kind, (const float* g, const float* x, float* y, int64_t count)) {     \
        in_turn();                                                                              \
        const int64_t i = element();                                                            \
        if (i < count) y[i] = function(g[i]) * x[i];                                            \
    }

namespace strata::STRATA_ISA {

STRATA_ACTIVATION(silu, silu)
STRATA_ACTIVATION(sigmoid, sigmoid)
STRATA_ACTIVATION(softplus, softplus)
STRATA_ACTIVATION(exp, shared_exp)

}  // namespace strata::STRATA_ISA

#undef STRATA_ACTIVATION
