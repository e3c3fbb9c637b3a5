// Norms of rows too long for one group of lanes: a block brings a row into shared memory, four values a thread, its
// first group sums it (the rule leaves one chain of additions per lane), and the whole block writes the result, which
// is also quantised where that is wanted.
#pragma once

#include "norm_rows.h"

namespace strata::STRATA_ISA {

constexpr int kWideThreads = 1024;  // at most

// Four neighbouring values; their place is a multiple of four.
struct Four {
    float v[4];
};

STRATA_INLINE Four four_at(const float* x) {
    const Words4 words = load16(x);
    return {{float_of_bits(words.w[0]), float_of_bits(words.w[1]), float_of_bits(words.w[2]), float_of_bits(words.w[3])}};
}

STRATA_INLINE void put_four(float* to, const Four& x) {
    *reinterpret_cast<Words4*>(to) = {{bits_of_float(x.v[0]), bits_of_float(x.v[1]), bits_of_float(x.v[2]), bits_of_float(x.v[3])}};
}

// What a row is made of, read at the kernel's turn: `ask` reads, `made` computes.
struct Plain {
    const float* x;
    using Asked = Four;
    STRATA_METHOD Asked ask(int i) const { return four_at(x + i); }
    STRATA_METHOD void ready() {}
    STRATA_METHOD Four made(const Asked& asked) const { return asked; }
};

struct Added {
    const float *x, *y;
    struct Asked {
        Four x, y;
    };
    STRATA_METHOD Asked ask(int i) const { return {four_at(x + i), four_at(y + i)}; }
    STRATA_METHOD void ready() {}
    STRATA_METHOD Four made(const Asked& asked) const {
        Four sum;
        UNROLL
        for (int k = 0; k < 4; ++k) sum.v[k] = asked.x.v[k] + asked.y.v[k];
        return sum;
    }
};

// (x r) w; a weight of one changes no bit.
STRATA_INLINE Four scaled_four(const Four& x, float r, const Four& w) {
    Four y;
    UNROLL
    for (int k = 0; k < 4; ++k) y.v[k] = (x.v[k] * r) * w.v[k];
    return y;
}

// Four weights; they need not lie at a multiple of four.
STRATA_INLINE Four weights_at(const float* w, int i) {
    Four found;
    UNROLL
    for (int k = 0; k < 4; ++k) found.v[k] = w == nullptr ? 1.0f : w[i + k];
    return found;
}

// A block's row of `n` values, a multiple of four, to `out`, and quantised where that is wanted, for multiples of 32;
// `total` gets the row itself, if it is not null.
template <class Source>
STRATA_INLINE void wide_norm(Source in, const float* w, float* total, float* out, const Beside& beside, int64_t row,
                             int n, float eps) {
    DYNAMIC_SHARED(float, kept);  // [n]
    SHARED(float, factor, 1);
    start_next();
    const int first = 4 * thread_x(), step = 4 * block_size();
    const bool on = first < n;
    const Four weight = on ? weights_at(w, first) : Four{};
    after_previous();
    Four own = {};
    if (on) {
        const auto asked = in.ask(first);
        in.ready();
        own = in.made(asked);
        put_four(kept + first, own);
        if (total) put_four(total + first, own);
    }
    KEEP_ROLLED  // short code: it is fetched anew for every launch
    for (int i = first + step; i < n; i += step) {
        const Four more = in.made(in.ask(i));
        put_four(kept + i, more);
        if (total) put_four(total + i, more);
    }
    barrier();
    if (warp() == 0) {
        const float sum = lane_squares(kept, n);
        if (lane() == 0) factor[0] = reciprocal_root(sum / static_cast<float>(n), eps);
    }
    barrier();
    const float r = factor[0];
    KEEP_ROLLED
    for (int i = first; i - 4 * lane() < n; i += step) {  // whole groups of lanes: they quantise together
        const bool here = i < n;
        Four y = {};
        if (here) y = i == first ? scaled_four(own, r, weight) : scaled_four(four_at(kept + i), r, weights_at(w, i));
        if (here) put_four(out + i, y);
        if (beside.by32) beside.put_four(y.v, row, i, here);
    }
}

}  // namespace strata::STRATA_ISA
