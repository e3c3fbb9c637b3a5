// Gated delta rule: a thread holds one column of a head's state in registers over all rows of a segment, so the state
// is read and written once. Sums over the key dims are chains by rule; ending a row (update, output) and beginning the
// next one (decay, read) share one pass, which keeps two chains going. Bits as delta_rule/naive.py.
#pragma once

#include "norm_rows.h"
#include "small.h"

namespace strata::STRATA_ISA {

#if defined(DELTA_KEY_DIM)
constexpr int kMostKeyDims = DELTA_KEY_DIM;
#define DELTA_DIMS constexpr int dim = DELTA_KEY_DIM, columns = DELTA_VALUE_DIM
#else
constexpr int kMostKeyDims = 256;
#define DELTA_DIMS const int dim = static_cast<int>(key_dim), columns = static_cast<int>(value_dim)
#endif

// Where a head's q and k of row 0 lie, and how far the next row's are.
struct HeadRows {
    const float* q;
    const float* k;
    int64_t step;
    bool ready;  // they are normalised
    float eps, scale;
};

// A lane's part of a row's q and k on their way to shared memory.
struct KeyRow {
    float q[kMostKeyDims / 32 + 1], k[kMostKeyDims / 32 + 1];
};

STRATA_INLINE KeyRow fetch_row(const HeadRows& from, int64_t row, int dim) {
    KeyRow held;
    UNROLL
    for (int i = 0; i < (dim + 31) / 32; ++i)
        if (lane() + 32 * i < dim) {
            held.q[i] = from.q[row * from.step + lane() + 32 * i];
            held.k[i] = from.k[row * from.step + lane() + 32 * i];
        }
    return held;
}

STRATA_INLINE float lane_square(const float* x, int dim) {
    float acc = 0.0f;
    UNROLL
    for (int i = 0; i < (dim + 31) / 32; ++i)
        if (lane() + 32 * i < dim) acc = fma(x[i], x[i], acc);
    return lane_tree(acc);
}

STRATA_INLINE void put_row(const HeadRows& from, const KeyRow& held, int dim, float* q, float* k) {
    float by_q = 1.0f, by_k = 1.0f;
    if (!from.ready) {
        by_q = reciprocal_root(lane_square(held.q, dim), from.eps);
        by_k = reciprocal_root(lane_square(held.k, dim), from.eps);
    }
    UNROLL
    for (int i = 0; i < (dim + 31) / 32; ++i)
        if (lane() + 32 * i < dim) {
            q[lane() + 32 * i] = from.ready ? held.q[i] : (held.q[i] * by_q) * from.scale;
            k[lane() + 32 * i] = from.ready ? held.k[i] : (held.k[i] * by_k) * 1.0f;
        }
}

// x [rows, 2 key_heads, dim] of qkv rows -> normalised [rows, 2 key_heads, dim]: q by `scale`, k by 1.
STRATA_KERNEL(delta_normalise, (const float* qkv, float* y, int64_t rows, int64_t key_heads, int64_t dim, int64_t width,
                                float eps, float scale)) {
    in_turn();
    const int64_t vector = row_of_group(), row = vector / (2 * key_heads), head = vector % (2 * key_heads);
    if (row >= rows) return;
    const float* in = qkv + row * width + head * dim;
    const float r = reciprocal_root(lane_dot(in, in, dim), eps), by = head < key_heads ? scale : 1.0f;
    for (int64_t i = lane(); i < dim; i += 32) y[vector * dim + i] = (in[i] * r) * by;
}

// Segment y's rows on 32 columns of a head. Grid: x column groups of all value heads, y segments; blocks of 32.
// qk [rows, ..]: `ready`, normalised rows of qk_width values, q then k; otherwise qkv itself.
STRATA_KERNEL_OF(32, delta_rule, (const float* qkv, const float* qk, const float* beta, const float* decay, float* state,
                                  float* out, const int32_t* segments, const int32_t* held, int64_t key_heads, int64_t value_heads,
                                  int64_t key_dim, int64_t value_dim, int64_t qk_width, int64_t ready, int64_t tiled,
                                  float eps, float scale)) {
    start_next();
    SHARED(float, shared_q, 2 * kMostKeyDims);
    SHARED(float, shared_k, 2 * kMostKeyDims);
    DELTA_DIMS;
    const int64_t across = (columns + 31) / 32, h = block_x() / across, c = block_x() % across * 32 + lane();
    const int64_t slot = segments[3 * block_y()], first = segments[3 * block_y() + 1];
    const int length = segments[3 * block_y() + 2];
    const int64_t key_head = tiled ? h % key_heads : h / (value_heads / key_heads);
    const int64_t width = 2 * key_heads * dim + value_heads * columns;
    const float* heads = qk + first * qk_width + key_head * dim;
    const HeadRows rows = {heads, heads + key_heads * dim, qk_width, ready != 0, eps, scale};
    const bool on = c < columns;
    const float* v = qkv + first * width + 2 * key_heads * dim + h * columns + c;
    const float* b = beta + first * value_heads + h;
    const float* g = decay + first * value_heads + h;
    float* place = state + (slot * value_heads + h) * dim * columns + c;
    float* to = out + (first * value_heads + h) * columns + c;

    float s[kMostKeyDims];
    UNROLL
    for (int i = 0; i < dim; ++i) s[i] = on && length > 0 ? place[i * columns] : 0.0f;
    // Before its turn: steps alone write the state, and copies of what a step reads run before it.
    after_previous();
    if (length == 0) return;
    put_row(rows, fetch_row(rows, 0, dim), dim, shared_q, shared_k);
    if (length > 1) put_row(rows, fetch_row(rows, 1, dim), dim, shared_q + dim, shared_k + dim);
    sync_warp();
    float read = 0.0f, fade = g[0], value = on ? v[0] : 0.0f, rate = b[0];
    UNROLL
    for (int i = 0; i < dim; ++i) {
        s[i] = s[i] * fade;
        read = fma(s[i], shared_k[i], read);
    }
    fade = length > 1 ? g[value_heads] : 1.0f;
    for (int t = 0; t + 1 < length; ++t) {
        const float* q = shared_q + (t & 1) * dim;
        const float* k = shared_k + (t & 1) * dim;
        const float* next = shared_k + (~t & 1) * dim;
        const float change = rate * (value - read);
        const bool more = t + 2 < length;
        KeyRow held;
        if (more) held = fetch_row(rows, t + 2, dim);
        value = on ? v[(t + 1) * width] : 0.0f;
        rate = b[(t + 1) * value_heads];
        const float later = more ? g[(t + 2) * value_heads] : 1.0f;
        float sum = 0.0f;
        read = 0.0f;
        UNROLL
        for (int i = 0; i < dim; ++i) {
            s[i] = fma(k[i], change, s[i]);
            sum = fma(s[i], q[i], sum);
            s[i] = s[i] * fade;
            read = fma(s[i], next[i], read);
        }
        fade = later;
        if (on) to[t * value_heads * columns] = sum;
        sync_warp();  // row t is used up
        if (more) put_row(rows, held, dim, shared_q + (t & 1) * dim, shared_k + (t & 1) * dim);
        sync_warp();
    }
    const int t = length - 1;
    const float* q = shared_q + (t & 1) * dim;
    const float* k = shared_k + (t & 1) * dim;
    const float change = rate * (value - read);
    const bool write = on && !(held && held[block_y()]);
    float sum = 0.0f;
    UNROLL
    for (int i = 0; i < dim; ++i) {
        s[i] = fma(k[i], change, s[i]);
        sum = fma(s[i], q[i], sum);
        if (write) place[i * columns] = s[i];
    }
    if (on) to[t * value_heads * columns] = sum;
}

}  // namespace strata::STRATA_ISA
