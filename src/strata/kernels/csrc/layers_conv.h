// Causal convolution with silu; conv/naive.py states every rounding.
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
    const int32_t* held;      // [num_segments]: not 0, the history stays as it is; null: none is held
    int64_t rows, num_segments, channels, taps, dilation;
};

struct CarryCall {
    const float* x;           // [rows, channels]
    float* history;           // [slots, span, channels]
    const int32_t* segments;  // [num_segments, 3]
    int64_t num_segments, channels, span;
};

struct ConvKernels {
    // scratch: per worker conv_floats(taps) floats.
    void (*conv)(Pool&, const ConvCall&, float* scratch);
    // The histories alone: what `conv` leaves in them. Reads neither weights nor taps.
    void (*carry)(Pool&, const CarryCall&);
};
STRATA_VARIANTS(ConvKernels, conv_kernels)

// Channels of one pass over the rows: 1 KB of a row is read at a time, and the rows of the taps stay in the first
// cache.
constexpr int64_t kConvChannels = 256;

static inline constexpr int64_t conv_floats(int64_t taps) { return taps * kConvChannels; }

}  // namespace strata
