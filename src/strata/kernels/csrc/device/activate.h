// activate, gate, and gate of heads by gates that lie apart, steps g_row and g_head: one thread an element; bits as
// activate/naive.py. What a gate gives, rows of `cols` values, is also quantised where that is wanted.
#pragma once

#include "beside.h"
#include "device.h"

#include "../activation.h"

#define STRATA_ACTIVATION(kind, function)                                                       \
    STRATA_KERNEL(activate_##kind,                                                              \
                  (const float* x, float divisor, float factor, float* y, int64_t count)) {     \
        in_turn();                                                                              \
        const int64_t i = element();                                                            \
        if (i < count) y[i] = function(x[i] / divisor) * factor;                                \
    }                                                                                           \
    STRATA_KERNEL(gate_##kind, (const float* g, const float* x, float* y, uint8_t* by32,        \
                                uint8_t* by16, int64_t count, int64_t cols)) {                  \
        in_turn();                                                                              \
        const int64_t i = element();                                                            \
        if (i >= count) return; /* a whole group of lanes where y is quantised */               \
        const float value = function(g[i]) * x[i];                                              \
        y[i] = value;                                                                           \
        const int row = static_cast<int>(i) / static_cast<int>(cols);                           \
        const Beside beside = {by32, by16, cols};                                               \
        beside.put(value, row, i - row * cols);                                                 \
    }                                                                                           \
    STRATA_KERNEL(gate_heads_##kind, (const float* g, const float* x, float* y, uint8_t* by32,  \
                                      uint8_t* by16, int64_t count, int64_t cols, int64_t dim,  \
                                      int64_t g_row, int64_t g_head)) {                         \
        in_turn();                                                                              \
        const int64_t i = element();                                                            \
        if (i >= count) return; /* a whole group of lanes where y is quantised */               \
        const int row = static_cast<int>(i) / static_cast<int>(cols);                           \
        const int column = static_cast<int>(i - row * cols), head = column / static_cast<int>(dim); \
        const float value = function(g[row * g_row + head * (g_head - dim) + column]) * x[i];   \
        y[i] = value;                                                                           \
        const Beside beside = {by32, by16, cols};                                               \
        beside.put(value, row, column);                                                         \
    }

namespace strata::STRATA_ISA {

STRATA_ACTIVATION(silu, silu)
STRATA_ACTIVATION(sigmoid, sigmoid)
STRATA_ACTIVATION(softplus, softplus)
STRATA_ACTIVATION(exp, shared_exp)

}  // namespace strata::STRATA_ISA

#undef STRATA_ACTIVATION
