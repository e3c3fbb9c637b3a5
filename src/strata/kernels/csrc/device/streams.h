// Mixing of residual streams: one thread an element, a row or a stream's row in x, pieces of it in y; bits as
// streams/naive.py.
#pragma once

#include "beside.h"
#include "small.h"

namespace strata::STRATA_ISA {

// The element of a row that is this thread's.
STRATA_INLINE int64_t column() { return static_cast<int64_t>(block_y()) * block_size() + thread_x(); }

// gate, x [rows, streams, hidden] -> y [rows, hidden], and y quantised where hidden is a multiple of 32. Four streams
// are asked for at once.
STRATA_KERNEL(stream_mix, (const float* gate, const float* x, float* y, uint8_t* by32, uint8_t* by16, int64_t streams,
                           int64_t hidden)) {
    in_turn();
    constexpr int batch = 4;
    const int64_t i = column(), row = block_x();
    if (i >= hidden) return;
    const float* g = gate + row * streams * hidden + i;
    const float* from = x + row * streams * hidden + i;
    float total = 0.0f;
    for (int64_t s = 0; s < streams; s += batch) {
        float gates[batch], values[batch];
        UNROLL
        for (int k = 0; k < batch; ++k) {
            gates[k] = s + k < streams ? g[(s + k) * hidden] : 0.0f;
            values[k] = s + k < streams ? from[(s + k) * hidden] : 0.0f;
        }
        UNROLL
        for (int k = 0; k < batch; ++k) {
            const float part = sigmoid(gates[k]) * values[k];
            if (s + k < streams) total = s + k == 0 ? part : total + part;
        }
    }
    const float mean = total / static_cast<float>(streams);
    y[row * hidden + i] = mean;
    const Beside beside = {by32, by16, hidden};
    beside.put(mean, row, i);
}

// residual [rows, streams, hidden], y [rows, hidden], gates [rows, streams] -> out. `step`: columns of all blocks of a
// row.
STRATA_KERNEL(stream_add, (const float* residual, const float* y, const float* gates, float divisor, float factor,
                           float* out, int64_t streams, int64_t hidden, int64_t step)) {
    in_turn();
    const int64_t stream = block_x(), row = block_x() / static_cast<int>(streams);
    const float gate = gates[stream], *value = y + row * hidden, *before = residual + stream * hidden;
    float strength = 0.0f;
    for (int64_t i = column(); i < hidden; i += step) {
        const float here = before[i], added = value[i];
        if (i < step) strength = sigmoid(gate / divisor) * factor;  // while the first values are on their way
        out[stream * hidden + i] = fma(strength, added, here);
    }
}

}  // namespace strata::STRATA_ISA
