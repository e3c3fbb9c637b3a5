// Routing, residual streams, cache writes and block means; route/, streams/ and cache/naive.py state every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "layers_plane.h"
#include "pool.h"

namespace strata {

struct SmallKernels {
    // logits [rows, experts] -> ids, weights [rows, top_k]; scratch: per worker `experts` floats.
    void (*route)(Pool&, const float* logits, int32_t* ids, float* weights, int64_t rows, int64_t experts,
                  int64_t top_k, bool renormalise, float* scratch);
    // gate, x [rows, streams * hidden] -> y [rows, hidden]
    void (*stream_mix)(Pool&, const float* gate, const float* x, float* y, int64_t rows, int64_t streams,
                       int64_t hidden);
    // out = residual + w y, w = sigmoid(gates / divisor) * factor
    // residual, out [rows, streams * hidden], y [rows, hidden], gates [rows, streams]
    void (*stream_add)(Pool&, const float* residual, const float* y, const float* gates, float divisor, float factor,
                       float* out, int64_t rows, int64_t streams, int64_t hidden);
    // Means of the entries block * ratio .. + ratio - 1 of the listed blocks -> out [n, raw.dim]
    void (*pool_blocks)(Pool&, const Plane& raw, const int32_t* slots, const int32_t* blocks, int64_t n, int64_t ratio,
                        float* out);
};
STRATA_VARIANTS(SmallKernels, small_kernels)

}  // namespace strata
