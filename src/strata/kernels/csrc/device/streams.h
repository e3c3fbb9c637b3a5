// Mixing of residual streams: one thread an element; bits as streams/naive.py.
#pragma once

#include "device.h"

#include "../activation.h"

namespace strata::STRATA_ISA {

// gate, x [rows, streams, hidden] -> y [rows, hidden], of `count` values.
STRATA_KERNEL(stream_mix, (const float* gate, const float* x, float* y, int64_t count, int64_t streams,
                           int64_t hidden)) {
    const int64_t i = element();
    if (i >= count) return;
    const int64_t first = i / hidden * streams * hidden + i % hidden;
    float total = sigmoid(gate[first]) * x[first];
    for (int64_t s = 1; s < streams; ++s) total = total + sigmoid(gate[first + s * hidden]) * x[first + s * hidden];
    y[i] = total / static_cast<float>(streams);
}

// residual [rows, streams, hidden], y [rows, hidden], weights [rows, streams] -> out, of `count` values.
STRATA_KERNEL(stream_add, (const float* residual, const float* y, const float* weights, float* out, int64_t count,
                           int64_t streams, int64_t hidden)) {
    const int64_t i = element();
    if (i >= count) return;
    const int64_t stream = i / hidden;
    out[i] = fma(weights[stream], y[stream / streams * hidden + i % hidden], residual[i]);
}

}  // namespace strata::STRATA_ISA
