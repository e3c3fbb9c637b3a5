// Elementwise arithmetic between the larger operations; elementwise/naive.py states every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "pool.h"

namespace strata {

struct ElementwiseKernels {
    void (*add)(Pool&, const float* x, const float* y, float* out, int64_t count);
    void (*divide)(Pool&, const float* x, float by, float* out, int64_t count);
    void (*multiply)(Pool&, const float* x, float by, float* out, int64_t count);
    // out = act(g) * x; kind as in `activate`.
    void (*gate)(Pool&, int kind, const float* g, const float* x, float* out, int64_t count);
    // out = sign(x) * sqrt(max(|x|, least))
    void (*signed_root)(Pool&, const float* x, float least, float* out, int64_t count);
    // b, a, beta, decay [rows, heads]; rate, bias [heads]
    void (*delta_rates)(Pool&, const float* b, const float* a, const float* rate, const float* bias, float* beta,
                        float* decay, int64_t rows, int64_t heads);
    // weights [rows, streams], x [rows, hidden] -> out [rows, streams * hidden]
    void (*spread)(Pool&, const float* weights, const float* x, float* out, int64_t rows, int64_t streams,
                   int64_t hidden);
};
STRATA_VARIANTS(ElementwiseKernels, elementwise_kernels)

}  // namespace strata
