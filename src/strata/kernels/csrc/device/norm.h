// rms_norm, l2_norm and row_dot: a group of 32 lanes sums, in the lane rule's order; bits as norm/naive.py.
//
// Narrow rows: a group of lanes does a row by itself. Wide rows: a block brings the row into shared memory, its first
// group sums it (the rule leaves one chain of additions per lane), and the whole block writes the result.
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

// sum of a_i b_i over a row, in every lane. What a lane waits for is memory, so it asks for eight values before it adds
// the first of them.
STRATA_INLINE float lane_dot(const float* a, const float* b, int64_t n) {
    constexpr int batch = 8;
    float acc = 0.0f;
    int64_t i = lane();
    for (; i + 32 * (batch - 1) < n; i += 32 * batch) {
        float left[batch], right[batch];
        UNROLL
        for (int k = 0; k < batch; ++k) {
            left[k] = a[i + 32 * k];
            right[k] = b[i + 32 * k];
        }
        UNROLL
        for (int k = 0; k < batch; ++k) acc = fma(left[k], right[k], acc);
    }
    for (; i < n; i += 32) acc = fma(a[i], b[i], acc);
    return lane_tree(acc);
}

STRATA_INLINE float reciprocal_root(float total, float eps) { return 1.0f / square_root(total + eps); }

// The rows that this block does: block_size() / 32, a group of lanes each.
STRATA_INLINE int64_t row_of_group() { return static_cast<int64_t>(block_x()) * (block_size() / 32) + warp(); }

// y = (x r) w for row `row` of n values; w repeats after weight_len values, 0: there is none.
STRATA_INLINE void scaled(const float* x, const float* weight, float* y, int64_t row, int64_t n, int64_t weight_len,
                          float r, int first, int step) {
    if (weight_len == 0) {
        for (int64_t i = first; i < n; i += step) y[row * n + i] = x[i] * r;
        return;
    }
    const float* w = weight + row * n % weight_len;
    for (int64_t i = first; i < n; i += step) y[row * n + i] = (x[i] * r) * w[i];
}

STRATA_KERNEL(rms_norm_narrow, (const float* x, const float* weight, float* y, int64_t rows, int64_t n,
                                int64_t weight_len, float eps)) {
    const int64_t row = row_of_group();
    if (row >= rows) return;  // a whole group of lanes
    const float* in = x + row * n;
    const float r = reciprocal_root(lane_dot(in, in, n) / static_cast<float>(n), eps);
    scaled(in, weight, y, row, n, weight_len, r, lane(), 32);
}

// A thread keeps its first values and their weights, which it asks for at once: what a wide row costs is waiting.
STRATA_KERNEL(rms_norm_wide, (const float* x, const float* weight, float* y, int64_t n, int64_t weight_len,
                              float eps)) {
    DYNAMIC_SHARED(float, kept);  // [n]
    SHARED(float, factor, 1);
    constexpr int held = 4;
    const int64_t row = block_x();
    const int step = block_size();
    const float* in = x + row * n;
    const float* w = weight_len == 0 ? nullptr : weight + row * n % weight_len;
    float own[held], scale[held];
    UNROLL
    for (int k = 0; k < held; ++k) {
        const int64_t i = thread_x() + k * step;
        own[k] = i < n ? in[i] : 0.0f;
        scale[k] = i < n && w != nullptr ? w[i] : 1.0f;
    }
    UNROLL
    for (int k = 0; k < held; ++k)
        if (thread_x() + k * step < n) kept[thread_x() + k * step] = own[k];
    for (int64_t i = thread_x() + held * step; i < n; i += step) kept[i] = in[i];
    barrier();
    if (warp() == 0) {
        const float total = lane_dot(kept, kept, n);
        if (lane() == 0) factor[0] = reciprocal_root(total / static_cast<float>(n), eps);
    }
    barrier();
    const float r = factor[0];
    float* out = y + row * n;
    UNROLL
    for (int k = 0; k < held; ++k) {
        const int64_t i = thread_x() + k * step;
        if (i < n) out[i] = w == nullptr ? own[k] * r : (own[k] * r) * scale[k];
    }
    for (int64_t i = thread_x() + held * step; i < n; i += step) out[i] = w == nullptr ? kept[i] * r : (kept[i] * r) * w[i];
}

STRATA_KERNEL(l2_norm, (const float* x, float* y, int64_t rows, int64_t n, float eps, float scale)) {
    const int64_t row = row_of_group();
    if (row >= rows) return;
    const float* in = x + row * n;
    const float r = reciprocal_root(lane_dot(in, in, n), eps);
    for (int64_t i = lane(); i < n; i += 32) y[row * n + i] = (in[i] * r) * scale;
}

STRATA_KERNEL(row_dot, (const float* a, const float* b, float* y, int64_t rows, int64_t n)) {
    const int64_t row = row_of_group();
    if (row >= rows) return;
    const float total = lane_dot(a + row * n, b + row * n, n);
    if (lane() == 0) y[row] = total;
}

}  // namespace strata::STRATA_ISA
