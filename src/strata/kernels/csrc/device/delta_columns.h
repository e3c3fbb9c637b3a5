// Gated delta rule: a thread holds one column of a head's state in registers over all rows of a segment, so the state
// is read and written once. Sums over the key dims are chains by rule; ending a row (update, output) and beginning the
// next one (decay, read) share one pass, which keeps two chains going. Bits as delta_rule/naive.py.
#pragma once

#include "beside.h"
#include "norm_rows.h"
#include "small.h"

namespace strata::STRATA_ISA {

#if defined(DELTA_KEY_DIM)
constexpr int kMostKeyDims = DELTA_KEY_DIM;
#define DELTA_DIMS(key, value) constexpr int dim = DELTA_KEY_DIM, columns = DELTA_VALUE_DIM
#else
constexpr int kMostKeyDims = 256;
#define DELTA_DIMS(key, value) const int dim = static_cast<int>(key), columns = static_cast<int>(value)
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

// What a call of the rule is about.
struct Rule {
    const float *qkv, *qk, *beta, *decay;
    float* state;
    const int32_t *segments, *held;
    int64_t key_heads, value_heads, key_dim, value_dim, qk_width;
    bool ready, tiled;
    float eps, scale;
};

// What a lane reads of a segment's rows: of row 0; v lies a row of qkv further for each next one, b and g `value_heads`
// values.
struct RuleInputs {
    HeadRows rows;
    const float *v, *b, *g;
};

// As they are.
struct NoTurn {
    STRATA_METHOD void operator()(int, RuleInputs&) const {}
};

// Segment y's rows on 32 columns of head h, number `c` this lane's: output t goes to to[t * to_step], if there is such
// a column. `shared_q` and `shared_k` hold two rows of this group's. Comes to the kernel's turn, and calls
// `turn(length, inputs)` then, which may tell of other places to read from.
template <class Turn>
STRATA_INLINE void rule_columns(const Rule& rule, int64_t h, int64_t c, float* shared_q, float* shared_k, float* to,
                                int64_t to_step, const Turn& turn) {
    DELTA_DIMS(rule.key_dim, rule.value_dim);
    const int32_t* const segment = rule.segments + 3 * block_y();
    const int64_t slot = segment[0], first = segment[1], key_heads = rule.key_heads, value_heads = rule.value_heads;
    const int length = segment[2];
    const int64_t key_head = rule.tiled ? h % key_heads : h / (value_heads / key_heads);
    const int64_t width = 2 * key_heads * dim + value_heads * columns;
    const float* heads = rule.qk + first * rule.qk_width + key_head * dim;
    RuleInputs in = {{heads, heads + key_heads * dim, rule.qk_width, rule.ready, rule.eps, rule.scale},
                     rule.qkv + first * width + 2 * key_heads * dim + h * columns + c, rule.beta + first * value_heads + h,
                     rule.decay + first * value_heads + h};
    const bool on = c < columns;
    float* place = rule.state + (slot * value_heads + h) * dim * columns + c;

    float s[kMostKeyDims];
    UNROLL
    for (int i = 0; i < dim; ++i) s[i] = on && length > 0 ? place[i * columns] : 0.0f;
    // Before its turn: steps alone write the state, and copies of what a step reads run before it.
    after_previous();
    turn(length, in);
    if (length == 0) return;
    const HeadRows& rows = in.rows;
    const float *const v = in.v, *const b = in.b, *const g = in.g;
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
        if (on) to[t * to_step] = sum;
        sync_warp();  // row t is used up
        if (more) put_row(rows, held, dim, shared_q + (t & 1) * dim, shared_k + (t & 1) * dim);
        sync_warp();
    }
    const int t = length - 1;
    const float* q = shared_q + (t & 1) * dim;
    const float* k = shared_k + (t & 1) * dim;
    const float change = rate * (value - read);
    const bool write = on && !(rule.held && rule.held[block_y()]);
    float sum = 0.0f;
    UNROLL
    for (int i = 0; i < dim; ++i) {
        s[i] = fma(k[i], change, s[i]);
        sum = fma(s[i], q[i], sum);
        if (write) place[i * columns] = s[i];
    }
    if (on) to[t * to_step] = sum;
}

#if defined(DELTA_VALUE_DIM)
constexpr int kMostValueDims = DELTA_VALUE_DIM < 32 ? 32 : DELTA_VALUE_DIM;
#else
constexpr int kMostValueDims = 256;
#endif

}  // namespace strata::STRATA_ISA
