// Norms of rows: a group of 32 lanes sums, in the lane rule's order; bits as norm/naive.py.
#pragma once

#include "beside.h"
#include "small.h"

namespace strata::STRATA_ISA {

// acc + the sum of a_i b_i for i = first, first + 32, ... below n, in that order. What a lane waits for is memory, so
// it asks for eight values before it adds the first of them.
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
    KEEP_ROLLED  // seldom any: short code
    for (int i = whole * 32 * batch + lane(); i < n; i += 32) acc = fma(kept[i], kept[i], acc);
    return lane_tree(acc);
}

STRATA_INLINE float reciprocal_root(float total, float eps) { return 1.0f / square_root(total + eps); }

// The rows that this block does: block_size() / 32, a group of lanes each.
STRATA_INLINE int64_t row_of_group() { return static_cast<int64_t>(block_x()) * (block_size() / 32) + warp(); }

// Weights of row `row` of n values; they repeat after weight_len values, a multiple of n; 0: there are none.
STRATA_INLINE const float* weights_of_row(const float* weight, int64_t weight_len, int64_t row, int64_t n) {
    if (weight_len <= n) return weight_len == 0 ? nullptr : weight;
    const uint32_t every = static_cast<uint32_t>(weight_len) / static_cast<uint32_t>(n);  // 64-bit division is long code
    return weight + static_cast<uint32_t>(row) % every * n;
}

STRATA_INLINE float scaled(float x, float r, const float* w, int64_t i) { return w == nullptr ? x * r : (x * r) * w[i]; }

constexpr int kNarrowHeld = 8;

// The first values of a row that a thread keeps, and their weights: those at first, first + step, ...
template <int Held>
struct HeldValues {
    float own[Held], scale[Held];
};

// Asks for all of them at once: what a row costs is waiting. The weights, which no kernel writes, before its turn.
template <int Held>
STRATA_INLINE void ask(HeldValues<Held>& values, const float* in, const float* w, int first, int step, int64_t n) {
    start_next();
    UNROLL
    for (int k = 0; k < Held; ++k)
        values.scale[k] = first + k * step < n && w != nullptr ? w[first + k * step] : 1.0f;
    after_previous();
    UNROLL
    for (int k = 0; k < Held; ++k) values.own[k] = first + k * step < n ? in[first + k * step] : 0.0f;
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

}  // namespace strata::STRATA_ISA
