// join, take_rows and completed_blocks: one thread a value; bits as rows/naive.py.
#pragma once

#include "device.h"

namespace strata::STRATA_ISA {

// A strided view [rows, a, b, c] into columns of out [rows, width], which begins at the first of them.
STRATA_KERNEL(join_view, (const float* x, float* out, int64_t count, int64_t width, int64_t a, int64_t b, int64_t c,
                          int64_t row_step, int64_t a_step, int64_t b_step, int64_t c_step)) {
    in_turn();
    const int64_t i = element();
    if (i >= count) return;
    const int64_t inner = i % (a * b * c), row = i / (a * b * c);
    out[row * width + inner] =
        x[row * row_step + inner / (b * c) * a_step + inner / c % b * b_step + inner % c * c_step];
}

STRATA_KERNEL(take_rows, (const float* x, const int32_t* index, float* out, int64_t count, int64_t width)) {
    in_turn();
    const int64_t i = element();
    if (i < count) out[i] = x[static_cast<int64_t>(index[i / width]) * width + i % width];
}

STRATA_KERNEL(completed_blocks, (const int32_t* positions, int32_t* blocks, int32_t* starts, int64_t rows,
                                 int64_t ratio)) {
    in_turn();
    const int64_t i = element();
    if (i >= rows) return;
    const int64_t end = static_cast<int64_t>(positions[i]) + 1;
    const bool complete = end % ratio == 0;
    blocks[i] = complete ? static_cast<int32_t>(end / ratio - 1) : -1;
    starts[i] = complete ? static_cast<int32_t>(end - ratio) : 0;
}

}  // namespace strata::STRATA_ISA
