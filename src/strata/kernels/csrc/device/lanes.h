// Rows of plain floats in shared memory, turned so that the values of a lane lie one after the other, and the lane
// rule's chains over them: 16 bytes of each at a time, so that nothing but the dependent additions takes time.
#pragma once

#include "products_plain.h"
#include "small.h"

namespace strata::STRATA_ISA {

// Where values lie in shared memory: `each` of a lane are 16 bytes. Lanes are so far apart that a warp reads or writes
// 16 bytes of each without two of them on one bank, whether eight neighbours of a turned tile or eight neighbouring
// lanes.
template <int each>
struct LaneLayout {
    static constexpr int pad = each == 8 ? 2 : 1;  // behind `each` lanes
    int units;                                     // of 16 bytes, of a lane

    STRATA_METHOD int step() const { return each == 8 ? units | 1 : (units + 5) / 8 * 8 + 2; }
    STRATA_METHOD int bytes() const { return (32 * step() + 32 / each * pad) * 16; }
    STRATA_METHOD int place(int l) const { return (l * step() + l / each * pad) * 16; }
};

// `each` steps of `each` lanes, as they lie in memory.
template <int each>
struct Tile {
    Words4 steps[each];

    STRATA_METHOD void ask(const uint8_t* from, int step_bytes) {
        STRATA_UNROLL
        for (int k = 0; k < each; ++k) steps[k] = load16(from + k * step_bytes);
    }
    // Lane i's values in the order of steps.
    STRATA_METHOD Words4 lane(int i) const {
        Words4 v;
        STRATA_UNROLL
        for (int p = 0; p < 4; ++p) {
            if constexpr (each == 4) {
                v.w[p] = steps[p].w[i];
            } else {
                const uint32_t a = steps[2 * p].w[i / 2], b = steps[2 * p + 1].w[i / 2];
                v.w[p] = i % 2 == 0 ? (a & 0xffffu) | b << 16 : a >> 16 | (b & 0xffff0000u);
            }
        }
        return v;
    }
    STRATA_METHOD void put(uint8_t* to, const LaneLayout<each>& layout, int first_lane, int unit) const {
        STRATA_UNROLL
        for (int i = 0; i < each; ++i) *reinterpret_cast<Words4*>(to + layout.place(first_lane + i) + 16 * unit) = lane(i);
    }
};

// A block's threads bring a row, a tile each; `i` is the tile's number.
template <int each>
STRATA_INLINE void bring_tile(uint8_t* to, const uint8_t* from, const LaneLayout<each>& layout, int i) {
    constexpr int groups = 32 / each, step_bytes = 32 * 16 / each;
    Tile<each> tile;
    tile.ask(from + i / groups * each * step_bytes + i % groups * 16, step_bytes);
    tile.put(to, layout, i % groups * each, i / groups);
}

// A lane's chains over one row of weights, with T rows of x.
template <class F, int T>
struct LaneChains {
    using Raw = typename F::Raw;
    static constexpr int each = 16 / F::bytes, batch = T == 1 ? 16 : 8;  // steps that are read together
    struct Batch {
        Words4 w[batch / each], x[T][batch / 4];
    };
    float acc[T] = {};

    STRATA_METHOD void load(Batch& b, const uint8_t* w, const uint8_t* x, int x_bytes) const {
        STRATA_UNROLL
        for (int n = 0; n < batch / 4; ++n) {
            STRATA_UNROLL
            for (int t = 0; t < T; ++t) b.x[t][n] = load16(x + t * x_bytes + 16 * n);
        }
        STRATA_UNROLL
        for (int n = 0; n < batch / each; ++n) b.w[n] = load16(w + 16 * n);
    }
    STRATA_METHOD static float value(const Words4& w, int i) {
        if constexpr (F::bytes == 4) return float_of_bits(w.w[i]);
        else return F::value(static_cast<Raw>(w.w[i / 2] >> 16 * (i % 2)));
    }
    STRATA_METHOD void sum(const Batch& b) {
        STRATA_UNROLL
        for (int n = 0; n < batch; ++n) {
            const float v = value(b.w[n / each], n % each);
            STRATA_UNROLL
            for (int t = 0; t < T; ++t) acc[t] = fma(float_of_bits(b.x[t][n / 4].w[n % 4]), v, acc[t]);
        }
    }
    // `steps` of a lane, a multiple of `each`; rows of x lie `x_bytes` apart. While some are added, the next ones are
    // on their way.
    STRATA_METHOD void run(const uint8_t* w, const uint8_t* x, int x_bytes, int steps) {
        const int full = steps / batch;
        Batch here, next;
        if (full > 0) load(here, w, x, x_bytes);
        STRATA_ROLL
        for (int i = 1; i < full; i += 2) {
            load(next, w + i * batch * F::bytes, x + i * batch * 4, x_bytes);
            sum(here);
            const int after = least(i + 1, full - 1);
            load(here, w + after * batch * F::bytes, x + after * batch * 4, x_bytes);
            sum(next);
        }
        if (full % 2 != 0) sum(here);
        STRATA_ROLL
        for (int at = full * batch; at < steps; ++at) {
            const float v = F::value(*reinterpret_cast<const Raw*>(w + at * F::bytes));
            STRATA_UNROLL
            for (int t = 0; t < T; ++t) acc[t] = fma(*reinterpret_cast<const float*>(x + t * x_bytes + 4 * at), v, acc[t]);
        }
    }
};

}  // namespace strata::STRATA_ISA
