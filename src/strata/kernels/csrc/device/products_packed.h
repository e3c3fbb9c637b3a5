// Products with rows of fewer than 32 sub-blocks, such as the down matrices of small experts: a step takes the 32 next
// sub-blocks of several rows that lie one after the other, so that no lane idles. A lane of the rule then has one term at
// most, and any thread may compute it; the terms go through shared memory to the threads that add them up.
#pragma once

#include "products_run.h"

namespace strata::STRATA_ISA {

template <int T>
struct Packed {
    static constexpr int rows = T <= 2 ? 8 : 4;         // of weights, in a unit
    static constexpr int parts = 32 / rows;              // threads that add up one row
    static constexpr int stride = 32 + parts;            // words from row to row: no two threads meet in a bank
    static constexpr int bytes = T * rows * stride * 4;  // of the terms of a group of lanes
};

// The sum of the 32 terms of row lane() / parts, in each of its threads: levels within a thread, then between them.
template <int T>
STRATA_INLINE float packed_tree(const float* terms) {
    using P = Packed<T>;
    const float* from = terms + lane() / P::parts * P::stride + lane() % P::parts;
    float v[P::rows];
    STRATA_UNROLL
    for (int i = 0; i < P::rows; ++i) v[i] = from[i * P::parts];
    STRATA_UNROLL
    for (int n = P::rows / 2; n > 0; n /= 2) {
        STRATA_UNROLL
        for (int i = 0; i < P::rows / 2; ++i)
            if (i < n) v[i] = v[i] + v[i + n];
    }
    STRATA_UNROLL
    for (int mask = P::parts / 2; mask > 0; mask /= 2) v[0] = v[0] + shuffle_xor(v[0], mask);
    return v[0];
}

template <class F, int T>
STRATA_INLINE void put_terms(const Staged& staged, const Line& line, const Inputs<T>& in, int64_t index, int row, int sub,
                             const uint32_t* table, float* terms) {
    typename Step<F>::Unpacked c;
    Step<F>::unpack(staged, line, index, table, c);
    STRATA_UNROLL
    for (int t = 0; t < T; ++t)
        if (t == 0 || t < in.count)
            terms[(t * Packed<T>::rows + row) * Packed<T>::stride + sub] =
                Step<F>::add(c, Step<F>::input(in.base + in.offset[t], sub), 0.0f);
}

// Work as in products_run.h, with units of Packed<T>::rows rows.
template <class F, int T, class Work>
STRATA_INLINE void run_packed(const Work& work, unsigned char* shared) {
    using P = Packed<T>;
    constexpr int depth = Ring<F, 1>::depth, groups = product_threads / 32;
    uint32_t* table = reinterpret_cast<uint32_t*>(shared);
    uint8_t* ring = shared + 4 * Grid<F>::words + warp() * (Ring<F, 1>::bytes + P::bytes);
    float* terms = reinterpret_cast<float*>(ring + Ring<F, 1>::bytes);
    const int subs = static_cast<int>(work.cols / F::sub);
    const int64_t stride = static_cast<int64_t>(grid_x()) * groups, steps = (P::rows * subs + 31) / 32;
    int64_t unit = static_cast<int64_t>(block_x()) * groups + warp();
    Ahead<F, 1, P::rows, Work> ahead = {work, ring, stride, Step<F>::row_bytes(work.cols), steps, unit};
    ahead.find();
    STRATA_ROLL
    for (int i = 0; i + 1 < depth; ++i) ahead.ask();
    for (int i = lane(); i < P::bytes / 4; i += 32) terms[i] = 0.0f;  // lanes without a sub-block stay so
    if (Grid<F>::words != 0) {
        Grid<F>::fill(table, thread_x(), product_threads);
        barrier();
    }
    int slot = 0;
    for (; unit < work.units; unit += stride) {
        if (!work.has(unit)) continue;
        Line line[1];
        Inputs<T> in;
        work.lines(unit, line);
        work.inputs(unit, in);
        const int64_t left = work.left(unit);
        const int rows = static_cast<int>(left < P::rows ? left : P::rows);
        int row = lane() / subs, sub = lane() % subs;
        STRATA_ROLL
        for (int step = 0; step < steps; ++step) {
            wait_for_copies<depth - 2>();
            sync_warp();
            ahead.ask();
            const Staged staged = {ring + slot * Ring<F, 1>::stage,
                                   static_cast<uint32_t>((reinterpret_cast<uintptr_t>(line[0].data) + step * Step<F>::bytes) & 15)};
            if (row < rows) put_terms<F, T>(staged, line[0], in, step * 32 + lane(), row, sub, table, terms);
            row += 32 / subs, sub += 32 % subs;
            if (sub >= subs) sub -= subs, ++row;
            slot = slot + 1 == depth ? 0 : slot + 1;
        }
        sync_warp();
        STRATA_UNROLL
        for (int t = 0; t < T; ++t)
            if (t == 0 || t < in.count) {
                const float sum = packed_tree<T>(terms + t * P::rows * P::stride);
                work.finish(unit, in.count, lane() / P::parts, t, lane() % P::parts == 0, sum);
            }
    }
}

}  // namespace strata::STRATA_ISA
