// rms_norm, l2_norm and row_dot: a group of 32 lanes sums, in the lane rule's order; bits as norm/naive.py. add_norm: the
// sum of two rows and its rms_norm.
//
// Narrow rows: a group of lanes does a row by itself. Wide rows: a block brings the row into shared memory, its first
// group sums it (the rule leaves one chain of additions per lane), and the whole block writes the result, which is
// also quantised where that is wanted.
#pragma once

#include "beside.h"
#include "small.h"

namespace strata::STRATA_ISA {

// acc + the sum of a_i b_i for i = first, first + 32, ... below n, in that order. What a lane waits for is memory, so it
// asks for eight values before it adds the first of them.
STRATA_INLINE float lane_chain(float acc, const float* a, const float* b, int64_t first, int64_t n) {
    constexpr int batch = 8;
    for (int64_t i = first; i < n; i += 32 * batch) {
        float left[batch], right[batch];
        UNROLL
        for (int k = 0; k < batch; ++k) {
            left[k] = i + 32 * k < n ? a[i + 32 * k] : 0.0f;
            right[k] = i + 32 * k < n ? b[i + 32 * k] : 0.0f;
        }
        UNROLL
        for (int k = 0; k < batch; ++k)
            if (i + 32 * k < n) acc = fma(left[k], right[k], acc);
    }
    return acc;
}

// sum of a_i b_i over a row, in every lane.
STRATA_INLINE float lane_dot(const float* a, const float* b, int64_t n) {
    return lane_tree(lane_chain(0.0f, a, b, lane(), n));
}

// sum of squares of a row in shared memory, in every lane: a lane asks for the next values before it adds those it has.
STRATA_INLINE float lane_squares(const float* kept, int n) {
    constexpr int batch = 8;
    const int whole = n / (32 * batch);
    float acc = 0.0f, now[batch];
    UNROLL
    for (int k = 0; k < batch; ++k) now[k] = whole > 0 ? kept[lane() + 32 * k] : 0.0f;
    for (int j = 1; j <= whole; ++j) {
        const float* from = kept + least(j, whole - 1) * 32 * batch + lane();
        float next[batch];
        UNROLL
        for (int k = 0; k < batch; ++k) next[k] = from[32 * k];
        UNROLL
        for (int k = 0; k < batch; ++k) {
            acc = fma(now[k], now[k], acc);
            now[k] = next[k];
        }
    }
    return lane_tree(lane_chain(acc, kept, kept, whole * 32 * batch + lane(), n));
}

STRATA_INLINE float reciprocal_root(float total, float eps) { return 1.0f / square_root(total + eps); }

// The rows that this block does: block_size() / 32, a group of lanes each.
STRATA_INLINE int64_t row_of_group() { return static_cast<int64_t>(block_x()) * (block_size() / 32) + warp(); }

// Weights of row `row` of n values; they repeat after weight_len values, 0: there are none.
STRATA_INLINE const float* weights_of_row(const float* weight, int64_t weight_len, int64_t row, int64_t n) {
    return weight_len == 0 ? nullptr : weight_len == n ? weight : weight + row * n % weight_len;
}

STRATA_INLINE float scaled(float x, float r, const float* w, int64_t i) { return w == nullptr ? x * r : (x * r) * w[i]; }

constexpr int kNarrowHeld = 8;

// The first values of a row that a thread keeps, and their weights: those at first, first + step, ...
template <int Held>
struct HeldValues {
    float own[Held], scale[Held];
};

// Values of a row as they are, or those of two rows added. `begin` is called at the kernel's turn.
struct Plain {
    const float* x;
    STRATA_METHOD void begin() {}
    STRATA_METHOD float operator()(int64_t i) const { return x[i]; }
};
struct Added {
    const float *x, *y;
    STRATA_METHOD void begin() {}
    STRATA_METHOD float operator()(int64_t i) const { return x[i] + y[i]; }
};

// Asks for all of them at once: what a row costs is waiting. The weights, which no kernel writes, before its turn.
template <int Held, class Source>
STRATA_INLINE void ask(HeldValues<Held>& values, Source& in, const float* w, int first, int step, int64_t n) {
    start_next();
    UNROLL
    for (int k = 0; k < Held; ++k)
        values.scale[k] = first + k * step < n && w != nullptr ? w[first + k * step] : 1.0f;
    after_previous();
    in.begin();
    UNROLL
    for (int k = 0; k < Held; ++k) values.own[k] = first + k * step < n ? in(first + k * step) : 0.0f;
}

// out = (x r) w; a weight of one changes no bit.
template <int Held>
STRATA_INLINE void write(const HeldValues<Held>& values, float* out, float r, int first, int step, int64_t n) {
    UNROLL
    for (int k = 0; k < Held; ++k)
        if (first + k * step < n) out[first + k * step] = (values.own[k] * r) * values.scale[k];
}

// 1 / root of the mean square of a row that a group of lanes has asked for.
template <int Held>
STRATA_INLINE float narrow_factor(const HeldValues<Held>& values, const float* in, int64_t n, float eps) {
    float acc = 0.0f;
    UNROLL
    for (int k = 0; k < Held; ++k)
        if (lane() + 32 * k < n) acc = fma(values.own[k], values.own[k], acc);
    acc = lane_chain(acc, in, in, lane() + 32 * Held, n);
    return reciprocal_root(lane_tree(acc) / static_cast<float>(n), eps);
}

STRATA_KERNEL(rms_norm_narrow, (const float* x, const float* weight, float* y, int64_t rows, int64_t n,
                                int64_t weight_len, float eps)) {
    constexpr int held = kNarrowHeld;
    const int64_t row = row_of_group();
    const bool on = row < rows;  // or not, a whole group of lanes
    const float* in = x + row * n;
    const float* w = on ? weights_of_row(weight, weight_len, row, n) : nullptr;
    HeldValues<held> values;
    Plain source = {in};
    ask(values, source, w, lane(), 32, on ? n : 0);
    if (!on) return;
    const float r = narrow_factor(values, in, n, eps);
    float* out = y + row * n;
    write(values, out, r, lane(), 32, n);
    for (int64_t i = lane() + 32 * held; i < n; i += 32) out[i] = scaled(in[i], r, w, i);
}

constexpr int kWideThreads = 1024;

// A block's row of `n` values to `out`, and quantised where that is wanted; `total` gets the row itself, if it is not null.
template <class Source>
STRATA_INLINE void wide_norm(Source in, const float* w, float* total, float* out, const Beside& beside, int64_t row,
                             int64_t n, float eps) {
    DYNAMIC_SHARED(float, kept);  // [n]
    SHARED(float, factor, 1);
    constexpr int held = 10;  // of 10,240 values, all
    const int first = thread_x(), step = kWideThreads;
    HeldValues<held> values;
    ask(values, in, w, first, step, n);
    UNROLL
    for (int k = 0; k < held; ++k)
        if (first + k * step < n) kept[first + k * step] = values.own[k];
    for (int64_t i = first + held * step; i < n; i += step) kept[i] = in(i);
    if (total) {
        UNROLL
        for (int k = 0; k < held; ++k)
            if (first + k * step < n) total[first + k * step] = values.own[k];
        for (int64_t i = first + held * step; i < n; i += step) total[i] = kept[i];
    }
    barrier();
    if (warp() == 0) {
        const float sum = lane_squares(kept, static_cast<int>(n));
        if (lane() == 0) factor[0] = reciprocal_root(sum / static_cast<float>(n), eps);
    }
    barrier();
    const float r = factor[0];
    write(values, out, r, first, step, n);
    for (int64_t i = first + held * step; i < n; i += step) out[i] = scaled(kept[i], r, w, i);
    if (!beside.by32) return;
    UNROLL
    for (int k = 0; k < held; ++k)  // a thread reads what it has written itself
        if (first + k * step < n) kept[first + k * step] = (values.own[k] * r) * values.scale[k];
    for (int64_t i = first + held * step; i < n; i += step) kept[i] = scaled(kept[i], r, w, i);
    KEEP_ROLLED  // short code: it is fetched anew for every launch
    for (int i = first; i < static_cast<int>(n); i += step) beside.put(kept[i], row, i);
}

STRATA_KERNEL_OF(kWideThreads, rms_norm_wide,
                 (const float* x, const float* weight, float* y, uint8_t* by32, uint8_t* by16, int64_t n,
                  int64_t weight_len, float eps)) {
    const int64_t row = block_x();
    const float* w = weights_of_row(weight, weight_len, row, n);
    wide_norm(Plain{x + row * n}, w, nullptr, y + row * n, {by32, by16, n}, row, n, eps);
}

// x, y [rows, n] -> total = x + y and its norm.
STRATA_KERNEL_OF(kWideThreads, add_norm,
                 (const float* x, const float* y, const float* weight, float* total, float* normed, uint8_t* by32,
                  uint8_t* by16, int64_t n, int64_t weight_len, float eps)) {
    const int64_t row = block_x();
    const float* w = weights_of_row(weight, weight_len, row, n);
    wide_norm(Added{x + row * n, y + row * n}, w, total + row * n, normed + row * n, {by32, by16, n}, row, n, eps);
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
