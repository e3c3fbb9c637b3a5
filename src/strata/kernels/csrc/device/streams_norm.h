// stream_add and the norm of each stream that follows: a block does a stream's row; bits as kernels/joined.py.
#pragma once

#include "wide_norm.h"

namespace strata::STRATA_ISA {

// A stream's row with what is written to it.
struct WrittenStream {
    const float *residual, *y, *gate;
    float divisor, factor, opened, strength;
    struct Asked {
        Four residual, y;
    };
    STRATA_METHOD Asked ask(int i) {
        opened = gate[0];
        return {four_at(residual + i), four_at(y + i)};
    }
    STRATA_METHOD void ready() { strength = sigmoid(opened / divisor) * factor; }
    STRATA_METHOD Four made(const Asked& asked) const {
        Four written;
        UNROLL
        for (int k = 0; k < 4; ++k) written.v[k] = fma(strength, asked.y.v[k], asked.residual.v[k]);
        return written;
    }
};

// residual [rows, streams, hidden], y [rows, hidden], gates [rows, streams]; weight [weight_len] -> total, as residual,
// and its norm. Grid: x streams of all rows.
STRATA_KERNEL_UP_TO(kWideThreads, stream_add_norm,
                 (const float* residual, const float* y, const float* gates, const float* weight, float* total, float* normed,
                  int64_t streams, int64_t hidden, int64_t weight_len, float divisor, float factor, float eps)) {
    const int64_t stream = block_x(), row = block_x() / static_cast<int>(streams), at = stream * hidden;
    const float* w = weights_of_row(weight, weight_len, stream, hidden);
    wide_norm(WrittenStream{residual + at, y + row * hidden, gates + stream, divisor, factor, 0.0f, 0.0f}, w, total + at, normed + at,
              {nullptr, nullptr, hidden}, stream, static_cast<int>(hidden), eps);
}

}  // namespace strata::STRATA_ISA
