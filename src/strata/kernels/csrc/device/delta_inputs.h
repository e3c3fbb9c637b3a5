// What a delta rule reads of a few rows, in one launch: q, k and v through a causal convolution of four taps, and how
// much is written and kept; bits as kernels/joined.py.
#pragma once

#include "conv_taps.h"

#include "../activation.h"

namespace strata::STRATA_ISA {

// x, out [rows, channels], weight [channels, 4], history [slots, 3, channels]; b, a, beta, decay [rows, heads], rate,
// bias [heads]. Grid: x one thread a channel of a segment, and one block more for the heads; y segments.
STRATA_KERNEL(delta_inputs, (const float* x, const float* weight, float* history, float* out, const float* b, const float* a,
                             const float* rate, const float* bias, float* beta, float* decay, const int32_t* segments,
                             const int32_t* held, int64_t channels, int64_t heads)) {
    start_next();
    const int32_t* segment = segments + 3 * block_y();
    const int first = segment[1], length = segment[2];
    if (block_x() == grid_x() - 1) {
        after_previous();
        for (int i = thread_x(); i < length * static_cast<int>(heads); i += block_size()) {
            const int head = i % static_cast<int>(heads);
            const int64_t at = first * heads + i;
            beta[at] = sigmoid(b[at]);
            decay[at] = shared_exp(rate[head] * softplus(a[at] + bias[head]));
        }
        return;
    }
    const int64_t c = element();
    const bool on = c < channels;
    float* const past = history + segment[0] * (kTaps - 1) * channels + c;
    // Of the history, too: steps alone write it, and copies of what a step reads run before it.
    float taps[kTaps], window[kTaps];
    UNROLL
    for (int k = 0; k < kTaps; ++k) taps[k] = on ? weight[c * kTaps + k] : 0.0f;
    UNROLL
    for (int k = 0; k + 1 < kTaps; ++k) window[k] = on ? past[k * channels] : 0.0f;
    after_previous();
    if (!on) return;
    const float* from = x + first * channels + c;
    float* to = out + first * channels + c;
    float next = length > 0 ? from[0] : 0.0f;
    KEEP_ROLLED
    for (int t = 0; t < length; ++t) {
        window[kTaps - 1] = next;
        from += channels;
        if (t + 1 < length) next = from[0];
        *to = silu(convolved(taps, window));
        to += channels;
        UNROLL
        for (int k = 0; k + 1 < kTaps; ++k) window[k] = window[k + 1];
    }
    if (held && held[block_y()]) return;
    UNROLL
    for (int k = 0; k + 1 < kTaps; ++k) past[k * channels] = window[k];
}

}  // namespace strata::STRATA_ISA
