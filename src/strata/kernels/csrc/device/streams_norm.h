// stream_add and the norm of each stream that follows: a block does a stream's row; bits as kernels/joined.py.
#pragma once

#include "norm.h"

namespace strata::STRATA_ISA {

// A stream's row with what is written to it.
struct WrittenStream {
    const float *residual, *y, *gate;
    float divisor, factor, strength;
    STRATA_METHOD void begin() { strength = sigmoid(gate[0] / divisor) * factor; }
    STRATA_METHOD float operator()(int64_t i) const { return fma(strength, y[i], residual[i]); }
};

// residual [rows, streams, hidden], y [rows, hidden], gates [rows, streams]; weight [weight_len] -> total, as residual, and
// its norm. Grid: x streams of all rows.
STRATA_KERNEL_OF(kWideThreads, stream_add_norm,
                 (const float* residual, const float* y, const float* gates, const float* weight, float* total, float* normed,
                  int64_t streams, int64_t hidden, int64_t weight_len, float divisor, float factor, float eps)) {
    const int64_t stream = block_x(), row = block_x() / static_cast<int>(streams), at = stream * hidden;
    const float* w = weights_of_row(weight, weight_len, stream, hidden);
    wide_norm(WrittenStream{residual + at, y + row * hidden, gates + stream, divisor, factor, 0.0f}, w, total + at, normed + at,
              {nullptr, nullptr, hidden}, stream, hidden, eps);
}

}  // namespace strata::STRATA_ISA
