// The gated delta rule of a few rows, by itself or with the norm and the gate behind it.
#pragma once

#include "delta_columns.h"

namespace strata::STRATA_ISA {

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

// Segment y's rows on 32 columns of a head -> out [rows, value_heads, value_dim]. Grid: x column groups of all value heads, y
// segments; blocks of 32. qk [rows, ..]: `ready`, normalised rows of qk_width values, q then k; otherwise qkv itself.
STRATA_KERNEL_OF(32, delta_rule, (const float* qkv, const float* qk, const float* beta, const float* decay, float* state,
                                  float* out, const int32_t* segments, const int32_t* held, int64_t key_heads, int64_t value_heads,
                                  int64_t key_dim, int64_t value_dim, int64_t qk_width, int64_t ready, int64_t tiled,
                                  float eps, float scale)) {
    start_next();
    SHARED(float, shared_q, 2 * kMostKeyDims);
    SHARED(float, shared_k, 2 * kMostKeyDims);
    const Rule rule = {qkv, qk, beta, decay, state, segments, held, key_heads, value_heads, key_dim, value_dim, qk_width,
                       ready != 0, tiled != 0, eps, scale};
    DELTA_DIMS(rule.key_dim, rule.value_dim);
    const int64_t across = (columns + 31) / 32, h = block_x() / across, c = block_x() % across * 32 + lane();
    float* const to = out + (segments[3 * block_y() + 1] * value_heads + h) * columns + c;
    rule_columns(rule, h, c, shared_q, shared_k, to, value_heads * columns, NoTurn{});
}

// delta_rule, each head's outputs normed (weight [value_dim] or null) and behind gates [rows, value_heads, value_dim], silu or
// `open`, sigmoid -> y, as gates, also quantised where that is wanted; bits as kernels/joined.py. value_dim is a multiple of
// 32. Grid: x value heads, y segments; blocks of value_dim threads. Dynamic shared memory: the outputs of a segment's rows.
STRATA_KERNEL_UP_TO(kMostValueDims, delta_gated,
                    (const float* qkv, const float* qk, const float* beta, const float* decay, float* state,
                     const float* gates, const float* weight, float* y, uint8_t* by32, uint8_t* by16, const int32_t* segments,
                     const int32_t* held, int64_t key_heads, int64_t value_heads, int64_t key_dim, int64_t value_dim,
                     int64_t qk_width, int64_t ready, int64_t tiled, int64_t open, float eps, float scale, float norm_eps)) {
    start_next();
    DYNAMIC_SHARED(float, made);  // [rows of the segment, value_dim]
    SHARED(float, shared_q, kMostValueDims / 32 * 2 * kMostKeyDims);
    SHARED(float, shared_k, kMostValueDims / 32 * 2 * kMostKeyDims);
    const Rule rule = {qkv, qk, beta, decay, state, segments, held, key_heads, value_heads, key_dim, value_dim, qk_width,
                       ready != 0, tiled != 0, eps, scale};
    DELTA_DIMS(rule.key_dim, rule.value_dim);
    const int64_t h = block_x(), first = segments[3 * block_y() + 1], width = value_heads * columns;
    const int length = segments[3 * block_y() + 2], c = thread_x(), own = warp() * 2 * dim;
    const float by = weight ? weight[c] : 1.0f;
    rule_columns(rule, h, c, shared_q + own, shared_k + own, made + c, columns, NoTurn{});
    const Beside beside = {by32, by16, width};
    const int64_t at = first * width + h * columns + c;
    float gate = length > 0 ? gates[at] : 0.0f;
    barrier();
    KEEP_ROLLED
    for (int t = 0; t < length; ++t) {
        const float* const row = made + t * columns;
        const float next = t + 1 < length ? gates[at + (t + 1) * width] : 0.0f;
        const float r = reciprocal_root(lane_squares(row, columns) / static_cast<float>(columns), norm_eps);
        const float opened = sigmoid(gate), value = (open ? opened : gate * opened) * ((row[c] * r) * by);
        y[at + t * width] = value;
        if (by32) beside.put(value, first + t, h * columns + c);
        gate = next;
    }
}

}  // namespace strata::STRATA_ISA
