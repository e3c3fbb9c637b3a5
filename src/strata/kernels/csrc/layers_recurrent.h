// Layers with a state that moves with the sequence: causal convolution and the gated delta rule; conv/naive.py and
// delta_rule/naive.py state every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "pool.h"

namespace strata {

struct ConvCall {
    const float* x;           // [rows, channels]
    const float* weight;      // [channels, taps]
    float* history;           // [slots, (taps - 1) * dilation, channels]
    float* out;               // [rows, channels]
    const int32_t* segments;  // [num_segments, 3]: slot, first row, number of rows
    int64_t rows, num_segments, channels, taps, dilation;
};

struct DeltaCall {
    const float* qkv;         // [rows, 2 * key_heads * key_dim + value_heads * value_dim]
    const float* beta;        // [rows, value_heads]
    const float* decay;       // [rows, value_heads]
    float* state;             // [slots, value_heads, key_dim, value_dim]
    float* out;               // [rows, value_heads, value_dim]
    const int32_t* segments;  // [num_segments, 3]
    int64_t rows, num_segments, key_heads, value_heads, key_dim, value_dim;
    bool tiled;               // value head h uses key head h mod key_heads, else h / (value_heads / key_heads)
    float eps, scale;         // scale of q
};

struct RecurrentKernels {
    // scratch: per worker taps * 64 floats.
    void (*conv)(Pool&, const ConvCall&, float* scratch);
    // scratch: per worker delta_floats(key_dim) floats.
    void (*delta)(Pool&, const DeltaCall&, float* scratch);
};
STRATA_VARIANTS(RecurrentKernels, recurrent_kernels)

constexpr int64_t kDeltaRows = 32;     // rows whose q and k are normalised at once
constexpr int64_t kDeltaColumns = 32;  // state columns that stay in the first cache over those rows
constexpr int64_t kConvChannels = 64;  // channels of one pass over the rows

static inline constexpr int64_t delta_floats(int64_t key_dim) { return key_dim * (2 * kDeltaRows + kDeltaColumns) + 64; }

}  // namespace strata
