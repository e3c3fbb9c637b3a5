// A plane of a paged cache, as kernels/views.py's PagedPlane describes it.
#pragma once

#include <stdint.h>

namespace strata {

// Entry p of slot s starts at value (table[s * pages_per_slot + p / page] * page + p % page) * width of `data`.
struct Plane {
    const void* data;
    const int32_t* table;
    int64_t page, pages_per_slot, width;

    const float* floats() const { return static_cast<const float*>(data); }
};

}  // namespace strata
