// Residual streams of many rows: their mix, four neighbouring elements a thread; stream_add and the norm that follows,
// a group of lanes for a stream's row. Bits as streams/naive.py and kernels/joined.py. NORM_VALUES as in norm_kept.h.
#pragma once

#include "norm_kept.h"
#include "wide_norm.h"

namespace strata::STRATA_ISA {

constexpr int mix_threads = 128;

// gate, x [rows, streams, hidden] -> y [rows, hidden], hidden a multiple of four. Grid: x fours of y. Four streams are
// asked for at once.
STRATA_KERNEL_OF(mix_threads, stream_mix_many,
                 (const float* gate, const float* x, float* y, int64_t fours, int64_t streams, int64_t hidden)) {
    constexpr int batch = 4;
    if (element() >= fours) return;
    const uint32_t across = static_cast<uint32_t>(hidden) / 4, row = static_cast<uint32_t>(element()) / across;
    const int64_t i = 4 * (static_cast<uint32_t>(element()) - row * across), first = row * streams * hidden + i;
    Four total = {};
    KEEP_ROLLED
    for (int s = 0; s < static_cast<int>(streams); s += batch) {
        Four gates[batch], values[batch];
        UNROLL
        for (int k = 0; k < batch; ++k) {
            const int64_t at = first + least(s + k, static_cast<int>(streams) - 1) * hidden;
            gates[k] = four_at(gate + at);
            values[k] = four_at(x + at);
        }
        UNROLL
        for (int k = 0; k < batch; ++k) {
            if (s + k >= streams) continue;
            UNROLL
            for (int c = 0; c < 4; ++c) {
                const float part = sigmoid(gates[k].v[c]) * values[k].v[c];
                total.v[c] = s + k == 0 ? part : total.v[c] + part;
            }
        }
    }
    UNROLL
    for (int c = 0; c < 4; ++c) total.v[c] = total.v[c] / static_cast<float>(streams);
    put_four(y + row * hidden + i, total);
}

// As stream_add_norm (streams_norm.h), for hidden = 32 NORM_VALUES.
STRATA_KERNEL_BESIDE(many_threads, many_beside, stream_add_norm_many,
                     (const float* residual, const float* y, const float* gates, const float* weight, float* total,
                      float* normed, int64_t all, int64_t streams, int64_t weight_len, float divisor, float factor, float eps)) {
    const int64_t stream = row_of_group(), at = stream * many_width;
    if (stream >= all) return;
    const float *before = residual + at, *added = y + static_cast<uint32_t>(stream) / static_cast<uint32_t>(streams) * many_width;
    const float strength = sigmoid(gates[stream] / divisor) * factor;
    ManyValues values;
    read_row(values, [&](int i) { return fma(strength, added[i], before[i]); });
    put_row(values, total + at);
    put_norm(values, weights_of_row(weight, weight_len, stream, many_width), normed + at, eps);
}

}  // namespace strata::STRATA_ISA
