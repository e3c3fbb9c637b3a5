// Arithmetic between the larger operations: one thread an element; bits as elementwise/naive.py.
#pragma once

#include "device.h"

#include "../activation.h"

namespace strata::STRATA_ISA {

STRATA_KERNEL(add, (const float* x, const float* y, float* out, int64_t count)) {
    in_turn();
    const int64_t i = element();
    if (i < count) out[i] = x[i] + y[i];
}

STRATA_KERNEL(divide, (const float* x, float by, float* out, int64_t count)) {
    in_turn();
    const int64_t i = element();
    if (i < count) out[i] = x[i] / by;
}

STRATA_KERNEL(multiply, (const float* x, float by, float* out, int64_t count)) {
    in_turn();
    const int64_t i = element();
    if (i < count) out[i] = x[i] * by;
}

STRATA_KERNEL(signed_root, (const float* x, float least, float* out, int64_t count)) {
    in_turn();
    const int64_t i = element();
    if (i >= count) return;
    const float value = x[i], size = fabsf(value);
    const float root = square_root(size < least ? least : size);
    const float sign = value > 0.0f ? 1.0f : value < 0.0f ? -1.0f : value * 0.0f;
    out[i] = sign * root;
}

STRATA_KERNEL(delta_rates, (const float* b, const float* a, const float* rate, const float* bias, float* beta,
                            float* decay, int64_t count, int64_t heads)) {
    in_turn();
    const int64_t i = element();
    if (i >= count) return;
    const int head = static_cast<int>(i) % static_cast<int>(heads);  // 64-bit division costs a GPU ten times as much
    beta[i] = sigmoid(b[i]);
    decay[i] = shared_exp(rate[head] * softplus(a[i] + bias[head]));
}

// weights [rows, streams], x [rows, hidden] -> out [rows, streams, hidden]; count is of out.
STRATA_KERNEL(spread, (const float* weights, const float* x, float* out, int64_t count, int64_t streams,
                       int64_t hidden)) {
    in_turn();
    const int64_t i = element();
    if (i >= count) return;
    const int64_t stream = i / hidden;
    out[i] = weights[stream] * x[stream / streams * hidden + i % hidden];
}

}  // namespace strata::STRATA_ISA
