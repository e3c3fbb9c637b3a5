// rms_norm, l2_norm and row_dot; add_norm: the sum of two rows and its rms_norm; bits as norm/naive.py. Narrow rows: a
// group of lanes does a row by itself.
#pragma once

#include "wide_norm.h"

namespace strata::STRATA_ISA {

STRATA_KERNEL(rms_norm_narrow, (const float* x, const float* weight, float* y, int64_t rows, int64_t n,
                                int64_t weight_len, float eps)) {
    constexpr int held = kNarrowHeld;
    const int64_t row = row_of_group();
    const bool on = row < rows;  // or not, a whole group of lanes
    const float* in = x + row * n;
    const float* w = on ? weights_of_row(weight, weight_len, row, n) : nullptr;
    HeldValues<held> values;
    ask(values, in, w, lane(), 32, on ? n : 0);
    if (!on) return;
    const float r = narrow_factor(values, in, n, eps);
    float* out = y + row * n;
    write(values, out, r, lane(), 32, n);
    for (int64_t i = lane() + 32 * held; i < n; i += 32) out[i] = scaled(in[i], r, w, i);
}

STRATA_KERNEL_UP_TO(kWideThreads, rms_norm_wide,
                    (const float* x, const float* weight, float* y, uint8_t* by32, uint8_t* by16, int64_t n,
                     int64_t weight_len, float eps)) {
    const int64_t row = block_x();
    const float* w = weights_of_row(weight, weight_len, row, n);
    wide_norm(Plain{x + row * n}, w, nullptr, y + row * n, {by32, by16, n}, row, static_cast<int>(n), eps);
}

// x, y [rows, n] -> total = x + y and its norm.
STRATA_KERNEL_UP_TO(kWideThreads, add_norm,
                    (const float* x, const float* y, const float* weight, float* total, float* normed, uint8_t* by32,
                     uint8_t* by16, int64_t n, int64_t weight_len, float eps)) {
    const int64_t row = block_x();
    const float* w = weights_of_row(weight, weight_len, row, n);
    const Beside beside = {by32, by16, n};
    wide_norm(Added{x + row * n, y + row * n}, w, total + row * n, normed + row * n, beside, row, static_cast<int>(n), eps);
}

STRATA_KERNEL(l2_norm, (const float* x, float* y, int64_t rows, int64_t n, float eps, float scale)) {
    in_turn();
    const int64_t row = row_of_group();
    if (row >= rows) return;
    const float* in = x + row * n;
    const float r = reciprocal_root(lane_dot(in, in, n), eps);
    for (int64_t i = lane(); i < n; i += 32) y[row * n + i] = (in[i] * r) * scale;
}

STRATA_KERNEL(row_dot, (const float* a, const float* b, float* y, int64_t rows, int64_t n)) {
    in_turn();
    const int64_t row = row_of_group();
    if (row >= rows) return;
    const float total = lane_dot(a + row * n, b + row * n, n);
    if (lane() == 0) y[row] = total;
}

}  // namespace strata::STRATA_ISA
