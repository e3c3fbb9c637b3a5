// The products' loop over formats with codes. A unit is two rows of one matrix, or of two matrices, done by one group of
// 32 lanes from beginning to end. The rows lie in memory one after the other, so a step takes the next 32 sub-blocks
// wherever a row ends: no lane idles. While a group computes a stage of some steps, the bytes of the next one, of this
// unit or another, are on their way into its ring in shared memory. Groups never wait for each other.
#pragma once

#include "products_step.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int product_threads = 512;  // at most; a launch may have fewer groups

// Bytes on their way to a group: L streams at once, `steps` steps in a stage.
template <class F, int L, int N>
struct Ring {
    static constexpr int step = Step<F>::bytes;
    static constexpr int steps = step <= 640 ? N : 2;
    static constexpr int piece = (steps * step + 15 + 16) / 16 * 16 + 16;  // any alignment, and reads past the end
    static constexpr int stage = L * piece, depth = 2, bytes = depth * stage;
};

// Brings the bytes of a group's units into its ring, a stage at a time.
template <class F, int L, class R, class Work>
struct Ahead {
    const Work& work;
    uint8_t* ring;
    int unit, row_bytes, stages;
    int stage = 0, slot = 0;
    Stream streams[L] = {};

    // Units that are not this launch's have no rows.
    STRATA_METHOD void find() {
        for (; unit < work.end; unit += work.stride) {
            work.streams(unit, streams);
            if (streams[0].rows > 0) return;
        }
    }

    STRATA_METHOD void ask() {
        if (stage == 0) find();
        if (unit < work.end) {
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) {
                const int from = stage * (R::steps * R::step), left = streams[l].rows * row_bytes - from;
                const int count = left < R::steps * R::step ? left : R::steps * R::step;  // below 1: nothing
                copy_lines<R::steps * R::step>(ring + slot * R::stage + l * R::piece, streams[l].data + from, count);
            }
            if (++stage == stages) stage = 0, unit += work.stride;
        }
        commit_copies();
        slot ^= 1;
    }
};

// Where a lane's sub-blocks of a stage begin; the next step's lie R::step bytes further.
template <class F, class R>
STRATA_INLINE typename Layout<F>::Block first_block(const uint8_t* ring, int staged, const uint8_t* data, int stage) {
    const uint32_t before = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data + stage * (R::steps * R::step)) & 15);
    const uint32_t at = static_cast<uint32_t>(keep(staged + before + lane() / Layout<F>::subs * F::bytes));
    return {reinterpret_cast<const uint32_t*>(ring + (at & ~3u)), at & 3};
}

// Steps of a unit of L streams of two rows each. A lane's sub-block is in one row or the other.
template <class F, int L, int T>
struct Pair {
    const Stream (&streams)[L];
    const Inputs<T>& in;
    int subs, number;  // of the sub-block in its block
    const Table table;
    Place first, second;  // in the first row of x, for the next stage: of a sub-block of the first row, and of the second
    float now[L][T] = {}, before[L][T] = {};  // sums of the row that the lane is in, and of the one before

    STRATA_METHOD Pair(const Stream (&of)[L], const Inputs<T>& x, int all, const Table& lookup)
        : streams(of), in(x), subs(all), number(keep(lane() % Layout<F>::subs)), table(lookup) {
        const int q = keep(16 * lane()), dm = keep(8 * lane()), turned = lane() - subs;
        const int back = keep((turned >> 5) * Record<F::sub>::bytes + 16 * (turned & 31) - q);
        const int back_dm = keep((turned >> 5) * Record<F::sub>::bytes + 8 * (turned & 31) - dm);
        first = {in.base + q, in.base + Record<F::sub>::values + dm};
        second = {first.q + back, first.dm + back_dm};
    }

    STRATA_METHOD void next_stage(int records) {
        const int bytes = records * Record<F::sub>::bytes;
        first = {first.q + bytes, first.dm + bytes};
        second = {second.q + bytes, second.dm + bytes};
    }

    // Step `from` + `k` of the unit; `block` has the bytes of step `from`. `sure`: every lane has a sub-block.
    template <bool sure, class R>
    STRATA_METHOD void step(const typename Layout<F>::Block (&block)[L], int from, int k) {
        const int index = (from + k) * 32 + lane(), beyond = index - subs;
        const bool active = sure || beyond < subs;
        if (beyond >= 0 && beyond < 32) {
            STRATA_UNROLL
            for (int i = 0; i < L * T; ++i) before[i / T][i % T] = now[i / T][i % T], now[i / T][i % T] = 0.0f;
        }
        if (!active) return;
        Codes<F::sub> c[L];
        STRATA_UNROLL
        for (int l = 0; l < L; ++l)
            c[l] = codes_of<F>({block[l].words + k * (R::step / 4), block[l].at}, number, streams[l], index, subs, table);
        const Place here = {beyond < 0 ? first.q : second.q, beyond < 0 ? first.dm : second.dm};
        STRATA_UNROLL
        for (int t = 0; t < T; ++t)
            if (t == 0 || t < in.count) {
                const Quantised<F::sub> x = input<F::sub>({here.q + in.offset[t], here.dm + in.offset[t]}, k);
                STRATA_UNROLL
                for (int l = 0; l < L; ++l) now[l][t] = add<F>(c[l], x, now[l][t]);
            }
    }
};

// Work, what differs between launches:
//     cols                      values of a row
//     start()                   finds the units begin, begin + stride, .. below end of this group
//     wait()                    until x is there
//     streams(unit, Stream*)    its rows, of one matrix or two; none when the unit is not this launch's
//     inputs(unit, Inputs<T>&)  its rows of x
//     finish(unit, count, l, r, t, first, sum)   called by all lanes of a group: a lane with `first` has the sum of row
//                               r of stream l with row t of x
template <class F, int L, int T, class Work>
STRATA_INLINE void run_rows(Work& work, unsigned char* shared) {
    using R = Ring<F, L, 5>;
    uint32_t* const table = reinterpret_cast<uint32_t*>(shared);
    uint8_t* const ring = shared + 4 * Unpack<F>::table_words + warp() * R::bytes;
    const int subs = work.cols / F::sub, steps = (2 * subs + 31) / 32, stages = (steps + R::steps - 1) / R::steps;
    work.start();
    Ahead<F, L, R, Work> ahead = {work, ring, work.begin, work.cols / F::block * F::bytes, stages};
    ahead.ask();
    if (Unpack<F>::table_words != 0) {
        Unpack<F>::fill(table, thread_x(), block_size());
        barrier();
    }
    work.wait();
    int slot = 0;
    STRATA_ROLL
    for (int unit = work.begin; unit < work.end; unit += work.stride) {
        Stream streams[L];
        Inputs<T> in;
        work.streams(unit, streams);
        if (streams[0].rows == 0) continue;
        work.inputs(unit, in);
        Pair<F, L, T> pair(streams, in, subs, table_of<F>(table));
        STRATA_ROLL
        for (int stage = 0; stage < stages; ++stage) {
            wait_for_copies<0>();
            sync_warp();  // all lanes' copies have landed, and nobody reads the slot that is filled next
            ahead.ask();
            typename Layout<F>::Block block[L];
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) block[l] = first_block<F, R>(ring, slot * R::stage + l * R::piece, streams[l].data, stage);
            const int from = stage * R::steps;
            if ((from + R::steps) * 32 <= 2 * subs) {
                STRATA_UNROLL
                for (int k = 0; k < R::steps; ++k) pair.template step<true, R>(block, from, k);
            } else {
                STRATA_ROLL
                for (int k = 0; from + k < steps; ++k) pair.template step<false, R>(block, from, k);
            }
            pair.next_stage(R::steps);
            slot ^= 1;
        }
        if ((steps - 1) * 32 + lane() < subs) {  // a short row, and this lane stayed in the first
            STRATA_UNROLL
            for (int i = 0; i < L * T; ++i)
                pair.before[i / T][i % T] = pair.now[i / T][i % T], pair.now[i / T][i % T] = 0.0f;
        }
        float sums[2 * L * T];
        STRATA_UNROLL
        for (int i = 0; i < L * T; ++i) sums[2 * i] = pair.before[i / T][i % T], sums[2 * i + 1] = pair.now[i / T][i % T];
        constexpr int each = 32 / (2 * L * T);
        const float sum = trees<2 * L * T, 16>(sums);
        const int number = lane() / each;
        work.finish(unit, in.count, number / (2 * T), number % 2, number / 2 % T, lane() % each == 0, sum);
    }
}

}  // namespace strata::STRATA_ISA
