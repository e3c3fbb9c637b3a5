// The gated delta rule; delta_rule/naive.py states every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "pool.h"

namespace strata {

struct DeltaCall {
    const float* qkv;         // [rows, 2 * key_heads * key_dim + value_heads * value_dim]
    const float* beta;        // [rows, value_heads]
    const float* decay;       // [rows, value_heads]
    float* state;             // [slots, value_heads, key_dim, value_dim]
    float* out;               // [rows, value_heads, value_dim]
    const int32_t* segments;  // [num_segments, 3]
    const int32_t* held;      // [num_segments]: not 0, the state stays as it is; null: none is held
    int64_t rows, num_segments, key_heads, value_heads, key_dim, value_dim;
    bool tiled;               // value head h uses key head h mod key_heads, else h / (value_heads / key_heads)
    float eps, scale;         // scale of q
};

struct DeltaKernels {
    // scratch: per worker delta_floats(key_dim, value_dim) floats.
    void (*delta)(Pool&, const DeltaCall&, float* scratch);
};
STRATA_VARIANTS(DeltaKernels, delta_kernels)

constexpr int64_t kDeltaRows = 64;     // rows whose q and k are normalised at once
constexpr int64_t kDeltaColumns = 32;  // state columns that stay in the first cache over those rows

// A multiple of 16, so that every worker's part begins on a cache line.
static inline constexpr int64_t delta_floats(int64_t key_dim, int64_t value_dim) {
    const int64_t rows = key_dim * (2 * kDeltaRows + kDeltaColumns) + kDeltaRows * (kDeltaColumns + 2);
    return (rows + key_dim * value_dim + 15) / 16 * 16;
}

}  // namespace strata
