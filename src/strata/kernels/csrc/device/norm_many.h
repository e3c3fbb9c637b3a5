// rms_norm and add_norm of many rows; bits as norm/naive.py.
#pragma once

#include "norm_kept.h"

namespace strata::STRATA_ISA {

STRATA_KERNEL_BESIDE(many_threads, many_beside, rms_norm_many,
                     (const float* x, const float* weight, float* y, int64_t rows, int64_t weight_len, float eps)) {
    const int64_t row = row_of_group();
    if (row >= rows) return;
    const float* in = x + row * many_width;
    ManyValues values;
    read_row(values, [&](int i) { return in[i]; });
    put_norm(values, weights_of_row(weight, weight_len, row, many_width), y + row * many_width, eps);
}

// x, y [rows, n] -> total = x + y and its norm.
STRATA_KERNEL_BESIDE(many_threads, many_beside, add_norm_many,
                     (const float* x, const float* y, const float* weight, float* total, float* normed, int64_t rows,
                      int64_t weight_len, float eps)) {
    const int64_t row = row_of_group(), at = row * many_width;
    if (row >= rows) return;
    ManyValues values;
    read_row(values, [&](int i) { return x[at + i] + y[at + i]; });
    put_row(values, total + at);
    put_norm(values, weights_of_row(weight, weight_len, row, many_width), normed + at, eps);
}

}  // namespace strata::STRATA_ISA
