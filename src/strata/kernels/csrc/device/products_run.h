// The products' loop. A unit is R rows of weights with up to T rows of x, done by one group of 32 lanes from beginning to
// end; a launch's groups take units in turn. While a group computes a step, the bytes of the next ones, of this unit or
// another, are on their way into its ring in shared memory. Groups never wait for each other (but once, for the grid).
#pragma once

#include "products_step.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int product_threads = 256;

template <class F, int R>
struct Ring {
    static constexpr int piece = (Step<F>::bytes + 15 + 16) / 16 * 16 + 16;  // any alignment, and reads past the end
    static constexpr int stage = R * piece;
    static constexpr int wanted = 7168 / stage;
    static constexpr int depth = wanted < 2 ? 2 : wanted > 8 ? 8 : wanted;
    static constexpr int bytes = depth * stage;
};

// Sums of N values over the lanes, N a power of two up to 32, in the order of the lane rule: lane l gets the sum of
// value l / (32 / N). While there are several, a level halves their number as well as the lanes of each.
template <int N, int mask, int size>
STRATA_INLINE float trees(float (&v)[size]) {
    if constexpr (mask == 0) {
        return v[0];
    } else if constexpr (N == 1) {
        v[0] = v[0] + shuffle_xor(v[0], mask);
        return trees<1, mask / 2>(v);
    } else {
        const bool upper = (lane() & mask) != 0;
        STRATA_UNROLL
        for (int i = 0; i < N / 2; ++i) {
            const float kept = upper ? v[i + N / 2] : v[i], sent = upper ? v[i] : v[i + N / 2];
            v[i] = kept + shuffle_xor(sent, mask);
        }
        return trees<N / 2, mask / 2>(v);
    }
}

// Work, what differs between launches:
//     units, cols               numbers of units, and of values in a row
//     has(unit)                 whether the unit is this launch's
//     lines(unit, Line (&)[R])  its first R rows of weights; left(unit) how many rows the matrix still has there
//     inputs(unit, Inputs<T>&)  its rows of x
//     finish(unit, count, r, t, first, sum)   called by all lanes of a group: a lane with `first` has the sum (r, t)
// The bytes to be asked for next: R lines of a unit, each of `across` rows that lie one after the other.
template <class F, int R, int across, class Work>
struct Ahead {
    const Work& work;
    uint8_t* ring;
    int64_t stride, row_bytes, steps, unit;
    int64_t step = 0;
    int slot = 0;
    Line lines[R] = {};

    STRATA_METHOD void find() {
        while (unit < work.units && !work.has(unit)) unit += stride;
        if (unit < work.units) work.lines(unit, lines);
    }

    STRATA_METHOD void ask() {
        if (unit < work.units) {
            int64_t whole = row_bytes;
            if constexpr (across > 1) whole *= work.left(unit) < across ? work.left(unit) : across;
            const int64_t from = step * Step<F>::bytes, left = whole - from;
            const int count = static_cast<int>(left < Step<F>::bytes ? left : Step<F>::bytes);  // below 1: nothing
            STRATA_UNROLL
            for (int r = 0; r < R; ++r)
                copy_lines<Step<F>::bytes>(ring + slot * Ring<F, R>::stage + r * Ring<F, R>::piece, lines[r].data + from, count);
            if (++step == steps) {
                step = 0;
                unit += stride;
                find();
            }
        }
        commit_copies();
        slot = slot + 1 == Ring<F, R>::depth ? 0 : slot + 1;
    }
};

template <class F, int R, int T, class Work>
STRATA_INLINE void run_products(const Work& work, unsigned char* shared) {
    constexpr int depth = Ring<F, R>::depth, groups = product_threads / 32;
    uint32_t* table = reinterpret_cast<uint32_t*>(shared);
    uint8_t* ring = shared + 4 * Grid<F>::words + warp() * Ring<F, R>::bytes;
    const int64_t stride = static_cast<int64_t>(grid_x()) * groups, steps = (work.cols + Step<F>::values - 1) / Step<F>::values;
    int64_t unit = static_cast<int64_t>(block_x()) * groups + warp();
    Ahead<F, R, 1, Work> ahead = {work, ring, stride, Step<F>::row_bytes(work.cols), steps, unit};
    ahead.find();
    STRATA_ROLL
    for (int i = 0; i + 1 < depth; ++i) ahead.ask();
    if (Grid<F>::words != 0) {
        Grid<F>::fill(table, thread_x(), product_threads);
        barrier();
    }
    int slot = 0;
    for (; unit < work.units; unit += stride) {
        if (!work.has(unit)) continue;
        Line lines[R];
        Inputs<T> in;
        work.lines(unit, lines);
        work.inputs(unit, in);
        float acc[R][T] = {};
        for (int64_t step = 0; step < steps; ++step) {
            wait_for_copies<depth - 2>();
            sync_warp();  // all lanes' copies have landed, and nobody reads the slot that is filled next
            ahead.ask();
            Staged staged[R];
            STRATA_UNROLL
            for (int r = 0; r < R; ++r)
                staged[r] = {ring + slot * Ring<F, R>::stage + r * Ring<F, R>::piece,
                             static_cast<uint32_t>((reinterpret_cast<uintptr_t>(lines[r].data) + step * Step<F>::bytes) & 15)};
            Step<F>::template run<R, T>(staged, lines, in, step, work.cols, table, acc);
            slot = slot + 1 == depth ? 0 : slot + 1;
        }
        float sums[R * T];
        STRATA_UNROLL
        for (int i = 0; i < R * T; ++i) sums[i] = acc[i / T][i % T];
        const float sum = trees<R * T, 16>(sums);
        const int index = lane() / (32 / (R * T));
        work.finish(unit, in.count, index / T, index % T, lane() % (32 / (R * T)) == 0, sum);
    }
}

}  // namespace strata::STRATA_ISA
