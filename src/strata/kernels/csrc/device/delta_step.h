// delta_inputs and delta_gated of one row in one launch: each block makes what its head reads; bits as
// kernels/joined.py.
#pragma once

#include "conv_taps.h"
#include "delta_columns.h"

#include "../activation.h"

namespace strata::STRATA_ISA {

// A channel of the convolution of one row, by one thread: taps and history are asked for before the kernel's turn.
struct Channel {
    float taps[kTaps], window[kTaps];

    STRATA_METHOD void ask(const float* weight, const float* past, int64_t channels, int64_t c) {
        UNROLL
        for (int k = 0; k < kTaps; ++k) taps[k] = weight[c * kTaps + k];
        UNROLL
        for (int k = 0; k + 1 < kTaps; ++k) window[k] = past[k * channels + c];
    }
    STRATA_METHOD float made(float x) {
        window[kTaps - 1] = x;
        return silu(convolved(taps, window));
    }
    STRATA_METHOD void keep(float* past, int64_t channels, int64_t c) const {
        UNROLL
        for (int k = 0; k + 1 < kTaps; ++k) past[k * channels + c] = window[k + 1];
    }
};

#if defined(DELTA_VALUE_DIM)
constexpr int kKeyChannels = (2 * DELTA_KEY_DIM + DELTA_VALUE_DIM - 1) / DELTA_VALUE_DIM;  // of a thread, in q and k, at most
#else
constexpr int kKeyChannels = 2 * kMostKeyDims / 32;
#endif

// The row x of segment 0, if it has one: x [channels], weight [channels, 4], history [slots, 3, channels], b, a, rate,
// bias [value_heads], gates, y [value_heads, value_dim], norm [value_dim] or null. `arrived` [key_heads] counts the
// blocks that have read a key head's history, which the last of them writes; 0 before and after. Grid: x value heads;
// blocks of value_dim threads, a multiple of 32.
STRATA_KERNEL_UP_TO(kMostValueDims, delta_step,
                    (const float* x, const float* weight, float* history, const float* b, const float* a, const float* rate,
                     const float* bias, float* state, const float* gates, const float* norm, float* y, uint8_t* by32,
                     uint8_t* by16, const int32_t* segments, int32_t* arrived, int64_t key_heads, int64_t value_heads,
                     int64_t key_dim, int64_t value_dim, int64_t tiled, int64_t open, float eps, float scale, float norm_eps)) {
    start_next();
    SHARED(float, shared_q, kMostValueDims / 32 * 2 * kMostKeyDims);
    SHARED(float, shared_k, kMostValueDims / 32 * 2 * kMostKeyDims);
    SHARED(float, keys, 2 * kMostKeyDims);  // q and k, convolved
    SHARED(float, made, kMostValueDims);
    SHARED(float, rates, 2);
    SHARED(int32_t, last, 1);
    const Rule rule = {nullptr, nullptr, nullptr, nullptr, state, segments, nullptr, key_heads, value_heads, key_dim, value_dim, 0,
                       false, tiled != 0, eps, scale};
    DELTA_DIMS(rule.key_dim, rule.value_dim);
    const int64_t h = block_x(), share = value_heads / key_heads, key_head = tiled ? h % key_heads : h / share;
    const int64_t channels = 2 * key_heads * dim + value_heads * columns, own = 2 * key_heads * dim + h * columns + thread_x();
    const int c = thread_x(), length = segments[2], at_shared = warp() * 2 * dim;
    float* const past = history + segments[0] * (kTaps - 1) * channels;
    auto channel_of = [&](int i) { return (i < dim ? 0 : (key_heads - 1) * dim) + key_head * dim + i; };
    Channel key[kKeyChannels], mine;
    UNROLL
    for (int k = 0; k < kKeyChannels; ++k)
        if (c + k * columns < 2 * dim) key[k].ask(weight, past, channels, channel_of(c + k * columns));
    mine.ask(weight, past, channels, own);
    const float by = norm ? norm[c] : 1.0f, fading = rate[h], shift = bias[h];
    float gate = 0.0f, value = 0.0f;
    int32_t before = 0;
    rule_columns(rule, h, c, shared_q + at_shared, shared_k + at_shared, made + c, 0, [&](int, RuleInputs& in) {
        if (length > 0) {
            float from[kKeyChannels];
            UNROLL
            for (int k = 0; k < kKeyChannels; ++k) from[k] = c + k * columns < 2 * dim ? x[channel_of(c + k * columns)] : 0.0f;
            const float raw = x[own], writing = b[h], kept = a[h];
            gate = gates[h * columns + c];
            UNROLL
            for (int k = 0; k < kKeyChannels; ++k)
                if (c + k * columns < 2 * dim) keys[c + k * columns] = key[k].made(from[k]);
            value = mine.made(raw);
            if (c == 0) rates[0] = sigmoid(writing);
            if (c == columns - 1) rates[1] = shared_exp(fading * softplus(kept + shift));
        }
        barrier();
        if (c == 0 && length > 0) before = atomic_add(arrived + key_head, 1);
        in.rows.q = keys, in.rows.k = keys + dim;
        in.v = &value, in.b = rates, in.g = rates + 1;
    });
    if (c == 0) last[0] = before == share - 1;
    barrier();
    if (length == 0) return;
    const float r = reciprocal_root(lane_squares(made, columns) / static_cast<float>(columns), norm_eps);
    const float opened = sigmoid(gate), result = (open ? opened : gate * opened) * ((made[c] * r) * by);
    y[h * columns + c] = result;
    const Beside beside = {by32, by16, value_heads * columns};
    if (by32) beside.put(result, 0, h * columns + c);
    mine.keep(past, channels, own);
    if (!last[0]) return;
    if (c == 0) arrived[key_head] = 0;
    UNROLL
    for (int k = 0; k < kKeyChannels; ++k)
        if (c + k * columns < 2 * dim) key[k].keep(past, channels, channel_of(c + k * columns));
}

}  // namespace strata::STRATA_ISA
