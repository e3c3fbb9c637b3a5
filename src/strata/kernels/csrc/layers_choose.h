// The passes over a row of logits that a choice needs; choose/naive.py states the rule.
#pragma once

#include <stdint.h>

#include "dispatch.h"

namespace strata {

struct ChooseKernels {
    // The largest value; NaN when there is one.
    float (*largest)(const float* values, int64_t count);
    // floor(2^44 exp((value - largest) / temperature)) -> weights; returns their sum.
    int64_t (*weigh)(const float* values, int64_t count, float largest, float temperature, int64_t* weights);
};
STRATA_VARIANTS(ChooseKernels, choose_kernels)

}  // namespace strata
