// exp, sigmoid, silu and softplus of many values; activate/naive.py states every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "pool.h"

namespace strata {

struct ActivateKernels {
    // y = kind(x / divisor) * factor; kind 0: silu, 1: sigmoid, 2: softplus, 3: exp; y may be x.
    void (*activate)(Pool&, int kind, const float* x, float divisor, float factor, float* y, int64_t count);
};
STRATA_VARIANTS(ActivateKernels, activate_kernels)

}  // namespace strata
