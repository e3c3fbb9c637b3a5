// Products with rows of fewer than 32 sub-blocks, such as the down matrices of small experts: as products_stream.h, but
// more rows are a unit. A lane of the rule then has one term at most, and any thread may compute it; the terms go
// through shared memory to the threads that add them up.
#pragma once

#include "products_stream.h"

namespace strata::STRATA_ISA {

template <int T>
struct Packed {
    static constexpr int rows = 8;                       // of weights, in a unit
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

// Steps of a unit: a lane's sub-block is sub-block `sub` of row `row`.
template <class F, int T, int W>
struct PackedTerms {
    const Stream& stream;
    const Inputs<W>& in;
    int subs, more_rows, more;  // from a step to the next
    const Table table;
    float* terms;
    int row, sub, number;  // of the sub-block in its block

    template <bool sure, class R>
    STRATA_METHOD void step(const typename Layout<F>::Block& block, int from, int k) {
        if (sure || row < Packed<T>::rows) {
            const Codes<F::sub> c = codes_of<F>({block.words + k * (R::step / 4), block.at}, number, stream,
                                                     (from + k) * 32 + lane(), subs, table);
            STRATA_UNROLL
            for (int t = 0; t < W; ++t) {
                const Quantised<F::sub> x = input<F::sub>(in.base + in.offset[t] + place_of<F::sub>(sub));
                terms[(t * Packed<T>::rows + row) * Packed<T>::stride + sub] = add<F>(c, x, 0.0f);
            }
        }
        row += more_rows, sub += more;
        if (sub >= subs) sub -= subs, ++row;
    }
};

// A unit with W of at most T rows of x, whose first stage lies in slot `slot` and is there.
template <class F, int T, int W, class R, class Work>
STRATA_INLINE void packed_rows(const Work& work, float* terms, const Table& table, Ahead<F, 1, R, Work>& ahead, int& slot) {
    using P = Packed<T>;
    const StageHead head = ahead.head(slot);
    const int unit = head.unit, subs = work.cols / F::sub, steps = (P::rows * subs + 31) / 32;
    Stream stream = {};
    if constexpr (Layout<F>::apart) work.streams(unit, &stream);
    const Inputs<W> in = inputs_of<W>(work, unit);
    PackedTerms<F, T, W> put = {stream, in, subs, 32 / subs, 32 % subs, table, terms, lane() / subs, lane() % subs,
                                keep(lane() % Layout<F>::subs)};
    STRATA_ROLL
    for (int stage = 0; stage < ahead.stages; ++stage) {
        if (stage > 0) ahead.landed();  // nor do lanes read the terms any more
        ahead.ask();
        const typename Layout<F>::Block block = first_block<F, R>(ahead.piece(slot, 0), head.before[0], stage);
        const int from = stage * R::steps;
        if ((from + R::steps) * 32 <= P::rows * subs) {
            STRATA_UNROLL
            for (int k = 0; k < R::steps; ++k) put.template step<true, R>(block, from, k);
        } else {
            STRATA_ROLL
            for (int k = 0; from + k < steps; ++k) put.template step<false, R>(block, from, k);
        }
        slot ^= 1;
    }
    sync_warp();
    STRATA_UNROLL
    for (int t = 0; t < W; ++t) {
        const float sum = packed_tree<T>(terms + t * P::rows * P::stride);
        const int row = lane() / P::parts;
        if (lane() % P::parts == 0 && row < head.rows && t < work.count(unit)) work.finish(unit, row, t, sum, sum);
    }
}

// Work as in products_stream.h, with units of Packed<T>::rows rows of one matrix.
template <class F, int T, class Work>
STRATA_INLINE void run_packed(Work& work, unsigned char* shared) {
    using P = Packed<T>;
    using R = Ring<F, 1, 5>;
    uint32_t* const table = reinterpret_cast<uint32_t*>(shared);
    uint8_t* const ring = shared + 4 * Unpack<F>::table_words + warp() * (R::bytes + P::bytes);
    float* const terms = reinterpret_cast<float*>(ring + R::bytes);
    const int steps = (P::rows * (work.cols / F::sub) + 31) / 32, stages = (steps + R::steps - 1) / R::steps;
    work.start();
    Ahead<F, 1, R, Work> ahead = {work, ring, work.begin, work.cols / F::block * F::bytes, stages};
    ahead.ask();
    for (int i = lane(); i < P::bytes / 4; i += 32) terms[i] = 0.0f;  // lanes without a sub-block stay so
    if (Unpack<F>::table_words != 0) {
        Unpack<F>::fill(table, thread_x(), block_size());
        barrier();
    }
    work.wait();
    touch_inputs<T>(work, work.begin, quantised_bytes<F::sub>(work.cols));
    const Table lookup = table_of<F>(table);
    int slot = 0;
    STRATA_ROLL
    for (;;) {
        ahead.landed();
        const int unit = ahead.head(slot).unit;
        if (unit < 0) return;
        if (T == 2 && work.count(unit) == 1) packed_rows<F, T, 1, R>(work, terms, lookup, ahead, slot);
        else packed_rows<F, T, T, R>(work, terms, lookup, ahead, slot);
    }
}

}  // namespace strata::STRATA_ISA
