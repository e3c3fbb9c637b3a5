// Depthwise causal convolution with a carried history; bits as conv/naive.py.
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

// A channel of history and segment together.
struct Column {
    const float* past;
    const float* x;
    int64_t span, channels;
};

STRATA_INLINE float at(const Column& column, int64_t row) {
    return row < column.span ? column.past[row * column.channels] : column.x[(row - column.span) * column.channels];
}

STRATA_INLINE float conv_at(const Column& column, const float* weight, int64_t t, int64_t taps, int64_t dilation) {
    constexpr int batch = 4;  // taps that are asked for at once
    float acc = 0.0f;
    for (int64_t k = 0; k < taps; k += batch) {
        float weights[batch], values[batch];
        UNROLL
        for (int j = 0; j < batch; ++j) {
            weights[j] = k + j < taps ? weight[k + j] : 0.0f;
            values[j] = k + j < taps ? at(column, t + (k + j) * dilation) : 0.0f;
        }
        UNROLL
        for (int j = 0; j < batch; ++j)
            if (k + j < taps) acc = fma(weights[j], values[j], acc);
    }
    return silu(acc);
}

STRATA_INLINE void carry(const Column& column, float* past, int64_t length) {
    constexpr int batch = 4;
    for (int64_t i = 0; i < column.span; i += batch) {  // a row is read before it is overwritten: sources lie ahead
        float values[batch];
        UNROLL
        for (int j = 0; j < batch; ++j) values[j] = i + j < column.span ? at(column, length + i + j) : 0.0f;
        UNROLL
        for (int j = 0; j < batch; ++j)
            if (i + j < column.span) past[(i + j) * column.channels] = values[j];
    }
}

// One thread a channel of a segment, all rows and then the history: for a few rows. Grid: x channels, y segments.
STRATA_KERNEL(conv_few, (const float* x, const float* weight, float* history, float* out, const int32_t* segments,
                         const int32_t* held, int64_t channels, int64_t taps, int64_t dilation)) {
    in_turn();
    const int64_t c = element();
    if (c >= channels) return;
    const int32_t* segment = segments + 3 * block_y();
    const int64_t span = (taps - 1) * dilation, first = segment[1], length = segment[2];
    float* past = history + segment[0] * span * channels + c;
    const Column column = {past, x + first * channels + c, span, channels};
    for (int64_t t = 0; t < length; ++t)
        out[(first + t) * channels + c] = conv_at(column, weight + c * taps, t, taps, dilation);
    if (!held || !held[block_y()]) carry(column, past, length);
}

constexpr int near_taps = 4, near_rows = 4;  // taps of neighbouring rows; rows whose values are asked for at once

// Rows first .. last - 1 of a column under `near_taps` neighbouring taps: each value is read once.
STRATA_INLINE void conv_near(const Column& column, const float* weight, int64_t first, int64_t last, float* out) {
    float taps[near_taps], values[near_taps - 1 + near_rows];
    UNROLL
    for (int k = 0; k < near_taps; ++k) taps[k] = weight[k];
    UNROLL
    for (int k = 0; k + 1 < near_taps; ++k) values[k] = at(column, first + k);
    for (int64_t t = first; t < last; t += near_rows) {
        UNROLL
        for (int j = 0; j < near_rows; ++j)
            if (t + j < last) values[near_taps - 1 + j] = at(column, t + near_taps - 1 + j);
        UNROLL
        for (int j = 0; j < near_rows; ++j) {
            if (t + j >= last) continue;
            float acc = 0.0f;
            UNROLL
            for (int k = 0; k < near_taps; ++k) acc = fma(taps[k], values[j + k], acc);
            out[(t + j) * column.channels] = silu(acc);
        }
        UNROLL
        for (int k = 0; k + 1 < near_taps; ++k) values[k] = values[k + near_rows];
    }
}

// One thread a channel of `each` rows, for many rows; conv_carry follows. Grid: x channels, y pieces of all rows.
STRATA_KERNEL(conv_many, (const float* x, const float* weight, const float* history, float* out,
                          const int32_t* segments, int64_t num_segments, int64_t rows, int64_t each, int64_t channels,
                          int64_t taps, int64_t dilation)) {
    in_turn();
    const int64_t c = element(), span = (taps - 1) * dilation;
    if (c >= channels) return;
    const int64_t begin = block_y() * each, end = begin + each < rows ? begin + each : rows;
    for (int64_t s = 0; s < num_segments; ++s) {
        const int64_t first = segments[3 * s + 1], stop = first + segments[3 * s + 2];
        const Column column = {history + segments[3 * s] * span * channels + c, x + first * channels + c, span, channels};
        const int64_t from = (begin > first ? begin : first) - first, to = (end < stop ? end : stop) - first;
        if (from >= to) continue;
        float* const here = out + first * channels + c;
        if (taps == near_taps && dilation == 1) {
            conv_near(column, weight + c * taps, from, to, here);
            continue;
        }
        for (int64_t t = from; t < to; ++t) here[t * channels] = conv_at(column, weight + c * taps, t, taps, dilation);
    }
}

// The histories of `span` rows move on by the segments that are not held. Grid: x channels, y segments.
STRATA_KERNEL(conv_carry, (const float* x, float* history, const int32_t* segments, const int32_t* held,
                           int64_t channels, int64_t span)) {
    in_turn();
    const int64_t c = element();
    if (c >= channels || (held && held[block_y()])) return;
    const int32_t* segment = segments + 3 * block_y();
    float* past = history + segment[0] * span * channels + c;
    carry({past, x + segment[1] * channels + c, span, channels}, past, segment[2]);
}

}  // namespace strata::STRATA_ISA
