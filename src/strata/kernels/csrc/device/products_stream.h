// The products' loop over formats with codes. A unit is two rows of one matrix, or of two matrices, done by one group
// of 32 lanes from beginning to end. The rows lie in memory one after the other, so a step takes the next 32 sub-blocks
// wherever a row ends: no lane idles. While a group computes a stage of some steps, the bytes of the next one, of this
// unit or another, are on their way into its ring in shared memory. Groups never wait for each other.
#pragma once

#include "products_step.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int product_threads = 512;  // at most; a launch may have fewer groups

// Bytes on their way to a group: L streams at once, `steps` steps in a stage, after its head.
template <class F, int L, int N>
struct Ring {
    static constexpr int step = Step<F>::bytes;
    static constexpr int steps = step <= 640 ? N : 2, whole = steps * step;
    static constexpr int piece = (whole + 15 + 16) / 16 * 16 + 16;  // any alignment, and reads past the end
    static constexpr int stage = 16 + L * piece, depth = 2, bytes = depth * stage;
};

// Brings the bytes of a group's units into its ring, a stage at a time.
template <class F, int L, class R, class Work>
struct Ahead {
    const Work& work;
    uint8_t* const ring;
    int unit;
    const int row_bytes, stages;
    int stage = 0, slot = 0, left = 0;  // left: bytes of the unit's rows that were not asked for
    const uint8_t* source[L] = {};      // the next ones

    STRATA_METHOD StageHead& head(int of) const { return *reinterpret_cast<StageHead*>(ring + of * R::stage); }
    STRATA_METHOD uint8_t* piece(int of, int l) const { return ring + of * R::stage + 16 + l * R::piece; }

    // Units that are not this launch's have no rows.
    STRATA_METHOD void find() {
        Stream streams[L] = {};
        for (; unit < work.end; unit += work.stride) {
            work.streams(unit, streams);
            if (streams[0].rows > 0) break;
        }
        left = streams[0].rows * row_bytes;
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) source[l] = streams[l].data;
        const int found = unit < work.end ? unit : -1;
        if (lane() == 0) head(slot) = {found, streams[0].rows, {line_offset(source[0]), line_offset(source[L - 1])}};
    }

    STRATA_METHOD void ask() {
        if (stage == 0) find();
        if (unit < work.end) {
            const int count = left < R::whole ? left : R::whole;  // below 1: nothing
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) {
                const int before = line_offset(source[l]), end = count > 0 ? before + count - 16 * lane() : 0;
                const uint8_t* const from = settled(source[l] - before + 16 * lane());
                const SharedPlace to = settled(shared_place(piece(slot, l) + 16 * lane()));
                STRATA_UNROLL
                for (int i = 0; i < R::whole + 15; i += 512)
                    if (i < end) copy16_to(to + i, from + i);
                source[l] += R::whole;
            }
            left -= R::whole;
            if (++stage == stages) stage = 0, unit += work.stride;
        }
        commit_copies();
        slot ^= 1;
    }

    // The stage that was asked for last is there for all lanes, and nobody reads the slot that is filled next.
    STRATA_METHOD void landed() const {
        wait_for_copies<0>();
        sync_warp();
    }
};

// Where a lane's sub-blocks of stage number `stage` begin; the next step's lie R::step bytes further.
template <class F, class R>
STRATA_INLINE typename Layout<F>::Block first_block(const uint8_t* piece, int before, int stage) {
    const int at = keep(((before + stage * R::whole) & 15) + lane() / Layout<F>::subs * F::bytes);
    return {reinterpret_cast<const uint32_t*>(piece + (at & ~3)), Layout<F>::align % 4 ? static_cast<uint32_t>(at & 3) : 0};
}

// Steps of a unit of L streams of two rows each. A lane's sub-block is in one row or the other.
template <class F, int L, int T>
struct Pair {
    const Inputs<T>& in;
    int subs, number;  // of the sub-block in its block
    const Table table;
    const uint8_t *first, *second;  // in the first row of x, for the next stage: a sub-block of the first row, of the second
    float now[L][T] = {}, before[L][T] = {};  // sums of the row that the lane is in, and of the one before

    STRATA_METHOD Pair(const Inputs<T>& x, int all, const Table& lookup)
        : in(x), subs(all), number(keep(lane() % Layout<F>::subs)), table(lookup) {
        const int here = place_of<F::sub>(lane());
        first = in.base + keep(here);
        second = first + keep(place_of<F::sub>(lane() - subs) - here);
    }

    STRATA_METHOD void next_stage(int records) {
        first += records * Record<F::sub>::bytes, second += records * Record<F::sub>::bytes;
    }

    // Step `from` + `k` of the unit; `block` has the bytes of step `from`. `sure`: every lane has a sub-block.
    template <bool sure, class R>
    STRATA_METHOD void step(const typename Layout<F>::Block (&block)[L], const Stream (&streams)[L], int from, int k) {
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
            c[l] = factors_of<F>({block[l].words + k * (R::step / 4), block[l].at}, number, streams[l], index, subs, table);
        const uint8_t* const here = (beyond < 0 ? first : second) + k * Record<F::sub>::bytes;
        STRATA_UNROLL
        for (int t = 0; t < T; ++t) {
            const Quantised<F::sub> x = input<F::sub>(here + in.offset[t]);
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) now[l][t] = add<F>(c[l], x, now[l][t]);
        }
    }
};

// A unit with T rows of x, whose first stage lies in slot `slot` and is there.
template <class F, int L, int T, class R, class Work>
STRATA_INLINE void pair_of_rows(const Work& work, const Table& table, const Inputs<T>& in, Ahead<F, L, R, Work>& ahead, int& slot) {
    const StageHead head = ahead.head(slot);
    const int unit = head.unit, subs = work.cols / F::sub, steps = (2 * subs + 31) / 32;
    Stream streams[L] = {};
    if constexpr (Layout<F>::apart) work.streams(unit, streams);
    Pair<F, L, T> pair(in, subs, table);
    STRATA_ROLL
    for (int stage = 0; stage < ahead.stages; ++stage) {
        if (stage > 0) ahead.landed();
        ahead.ask();
        typename Layout<F>::Block block[L];
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) block[l] = first_block<F, R>(ahead.piece(slot, l), head.before[l], stage);
        const int from = stage * R::steps;
        if ((from + R::steps) * 32 <= 2 * subs) {
            STRATA_UNROLL
            for (int k = 0; k < R::steps; ++k) pair.template step<true, R>(block, streams, from, k);
        } else {
            STRATA_ROLL
            for (int k = 0; from + k < steps; ++k) pair.template step<false, R>(block, streams, from, k);
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
    const float sum = trees<2 * L * T, 16>(sums), second = L > 1 ? shuffle_xor(sum, 16) : sum;
    const int r = lane() / each % 2, t = lane() / (2 * each) % T;
    if (lane() % each == 0 && lane() < 32 / L && r < head.rows && t < work.count(unit)) work.finish(unit, r, t, sum, second);
}

// Work, what differs between launches:
//     cols, lines               values of a row; rows of a unit in each matrix
//     start()                   finds the units begin, begin + stride, .. below end of this group
//     wait()                    until x is there
//     streams(unit, Stream*)    its rows, of one matrix or two; none when the unit is not this launch's
//     count(unit)               its rows of x; one_input(): they are the same rows for all units
//     input(unit, t)            where row t of them lies
//     finish(unit, r, t, sum, second)   called by one lane: row r of the unit with row t of x, in the first matrix and
//     the last
template <class F, int L, int T, class R, class Work>
STRATA_INLINE void run_stages(Work& work, unsigned char* shared) {
    uint32_t* const table = reinterpret_cast<uint32_t*>(shared);
    uint8_t* const ring = shared + 4 * Unpack<F>::table_words + warp() * R::bytes;
    const int steps = (2 * (work.cols / F::sub) + 31) / 32, stages = (steps + R::steps - 1) / R::steps;
    work.start();
    Ahead<F, L, R, Work> ahead = {work, ring, work.begin, work.cols / F::block * F::bytes, stages};
    ahead.ask();
    if (Unpack<F>::table_words != 0) {
        Unpack<F>::fill(table, thread_x(), block_size());
        barrier();
    }
    work.wait();
    const InputRows<F, T, Work> rows = {shared + 4 * Unpack<F>::table_words + block_size() / 32 * R::bytes};
    rows.bring(work);
    const Table lookup = table_of<F>(table);
    int slot = 0;
    STRATA_ROLL
    for (;;) {
        ahead.landed();
        const int unit = ahead.head(slot).unit;
        if (unit < 0) return;
        if (T == 2 && !work.one_input() && work.count(unit) == 1) pair_of_rows<F, L, 1, R>(work, lookup, inputs_of<1>(work, unit), ahead, slot);
        else pair_of_rows<F, L, T, R>(work, lookup, rows.of(work, unit), ahead, slot);
    }
}

// Stages of five steps, or of four where those fit a unit and fives do not: the steps of a last stage that is not full
// are slow.
template <class F, int L, int T, class Work>
STRATA_INLINE void run_rows(Work& work, unsigned char* shared) {
    if constexpr (T == 1 && L == 1 && Ring<F, L, 5>::steps == 5) {
        const int subs = 2 * (work.cols / F::sub);
        if (subs % 160 != 0 && subs % 128 == 0) return run_stages<F, L, T, Ring<F, L, 4>>(work, shared);
    }
    run_stages<F, L, T, Ring<F, L, 5>>(work, shared);
}

}  // namespace strata::STRATA_ISA
