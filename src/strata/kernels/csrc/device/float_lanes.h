// Products of a few rows of x with long rows of weights that are plain floats, bit for bit as kernels/linear/naive.py.
// One unit for each STRATA_FORMAT.
#pragma once

#include "products_lanes.h"

namespace strata::STRATA_ISA {

constexpr int kLaneThreads = 640;

#define STRATA_FLOAT_LANES(T)                                                                                          \
    STRATA_KERNEL_BESIDE(kLaneThreads, 1, float_lanes_##T,                                                           \
                         (const Matrix* matrices, int64_t count, int64_t units, const uint8_t* x, float* y,            \
                          int64_t rows, int64_t cols)) {                                                               \
        DYNAMIC_SHARED(uint8_t, shared);                                                                               \
        const LinearWork<STRATA_FORMAT, T> work = {{}, matrices, x, y, count, rows, units, 0, static_cast<int>(cols), 1}; \
        float_lanes<STRATA_FORMAT, T>(work, shared);                                                                    \
    }

STRATA_FLOAT_LANES(1)
STRATA_FLOAT_LANES(2)
STRATA_FLOAT_LANES(4)

#undef STRATA_FLOAT_LANES

}  // namespace strata::STRATA_ISA
