// QSA's choice of blocks; sparse_attention/naive.py states every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "layers_plane.h"
#include "pool.h"

namespace strata {

struct SelectCall {
    const float* q;           // [rows, heads, dim]
    Plane keys;               // one head; entry j is block j's key
    const int32_t* slot;      // [rows]
    const int32_t* position;  // [rows]
    int64_t rows, heads, dim, ratio, budget;
    int32_t* positions;       // [rows, (budget + 1) * ratio]
    int32_t* count;           // [rows]
};

constexpr int64_t kSelectCounts = 2048;  // counters of the ranking, per row

struct SelectKernels {
    // rows > 0; scratch: rows * (stride + kSelectCounts) floats, stride >= the most blocks a row sees, a multiple of
    // 16.
    void (*select)(Pool&, const SelectCall&, int64_t stride, float* scratch);
};
STRATA_VARIANTS(SelectKernels, select_kernels)

}  // namespace strata
