// Writes into a paged cache; cache/naive.py states every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "layers_plane.h"
#include "pool.h"

namespace strata {

struct CacheKernels {
    // Puts row i of x [n, heads, dim] at entry entries[i] of slot slots[i]; kNoEntry puts it nowhere;
    // of equal entries the last row stays.
    void (*write)(Pool&, const Plane& plane, const int32_t* slots, const int32_t* entries, const float* x, int64_t n);
};
STRATA_VARIANTS(CacheKernels, cache_kernels)

}  // namespace strata
