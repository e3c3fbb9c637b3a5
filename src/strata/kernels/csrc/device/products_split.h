// The products' loop over the rows of experts, in formats with codes. A unit is some consecutive rows of a matrix, or of two,
// done by one group of 32 lanes: `parts` neighbouring lanes have a row, lane p of them its sub-blocks p, p + parts, ..,
// whose terms go to its 32 / parts sums in turn. So a lane's sum is one lane's of the lane rule, x is read once for all rows
// of a unit, and rows of few sub-blocks leave no lane idle. The loop over steps is short code: each launch fetches it anew.
// Bytes come to shared memory in stages of some steps, a stage ahead of the one that is computed.
#pragma once

#include "arrivals.h"
#include "expert_work.h"

namespace strata::STRATA_ISA {

// Lanes of a row: whole blocks of the format in a step.
template <class F>
constexpr int least_parts = Layout<F>::subs > 4 ? Layout<F>::subs : 4;

// Shared memory of a group; kernels/experts/launch.py computes the same sizes.
template <class F, int L, int P>
struct Split {
    static constexpr int parts = P, rows = 32 / P, sums = 32 / P;
    static constexpr int step = P * F::sub / F::block * F::bytes;  // of a row
    static constexpr int steps = step <= 300 ? 5 : 2;              // of a stage
    static constexpr int whole = steps * step;
    static constexpr int piece = (whole + 15 + 16) / 16 * 16 + 16;  // any alignment, and reads past the end
    static constexpr int head = sizeof(UnitHead) + 16, slot = head + L * rows * piece, depth = 2, bytes = depth * slot;
    static_assert(P * F::sub % F::block == 0, "a step has whole blocks");
};

// Brings the bytes of a group's units, a stage at a time. Rows of one stage lie one after the other, those of several
// stages S::piece apart.
template <class S, int L, class Work>
struct SplitBringing {
    const Work& work;
    uint8_t* const at;
    int unit;
    const int row_bytes, stages;
    int stage = 0, slot = 0, rows = 0, turn = 0;  // turn: stages that landed
    const uint8_t* source[L] = {};                // the unit's next bytes

    STRATA_METHOD UnitHead& head(int of) const { return *reinterpret_cast<UnitHead*>(at + of * S::slot); }
    STRATA_METHOD uint64_t* arrival(int of) const { return reinterpret_cast<uint64_t*>(at + of * S::slot + sizeof(UnitHead)); }
    // Of the first matrix; that of the second lies S::rows * S::piece further.
    STRATA_METHOD uint8_t* place(int of) const { return at + of * S::slot + S::head; }
    // Of a row in them, where the unit's bytes begin `before` bytes after a line.
    STRATA_METHOD int place_of_row(int before, int row) const {
        const int first = before + row * row_bytes;
        return stages == 1 ? first : row * S::piece + (first & 15);
    }

    STRATA_METHOD void start() {
        if (lane() < S::depth) expect(arrival(lane()), stages == 1 ? L : L * S::rows);
        sync_warp();
        STRATA_UNROLL
        for (int i = 0; i < S::depth; ++i) next();
    }

    // The next stage, asked for S::depth calls ago, is there for all lanes, or there is no more: then the head says so.
    STRATA_METHOD void landed() {
        sync_warp();
        if (head(turn % S::depth).unit >= 0) arrived<S::depth - 1>(arrival(turn % S::depth), turn / S::depth);
        ++turn;
    }

    // Units that are not this launch's have no rows.
    STRATA_METHOD void find() {
        UnitHead found = {-1, 0, {}, 0, 0, 0, {}, {}, 0};
        Stream streams[L] = {};
        STRATA_ROLL
        for (; unit < work.end; unit += work.stride) {
            const UnitHead one = work.unit(unit);
            if (one.rows == 0) continue;
            found = one;
            work.streams(found, streams);
            break;
        }
        rows = found.rows;
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) source[l] = streams[l].data;
        found.before[0] = line_offset(streams[0].data), found.before[1] = line_offset(streams[L - 1].data);
        if (lane() == 0) head(slot) = found;
    }

    STRATA_METHOD void next() {
        if (stage == 0) find();
        else if (lane() == 0) head(slot).unit = unit;
        if (unit < work.end) {
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) {
                uint8_t* const to = place(slot) + l * S::rows * S::piece;
                if (stages == 1) {
                    const int before = line_offset(source[l]);
                    bring<32>(arrival(slot), to, source[l] - before, (before + rows * row_bytes + 15) & ~15);
                } else {
                    const int row = lane() / S::parts, left = row_bytes - stage * S::whole, count = left < S::whole ? left : S::whole;
                    const uint8_t* const from = source[l] + row * row_bytes + stage * S::whole;
                    const int before = line_offset(from);
                    bring<S::parts>(arrival(slot), to + row * S::piece, from - before, row < rows ? (before + count + 15) & ~15 : 0);
                }
            }
            if (++stage == stages) stage = 0, unit += work.stride;
        }
        asked();
        slot ^= 1;
    }
};

// What a lane adds up of a unit with T rows of x: sum[..][0] is that of its next sub-block.
template <class F, int L, int T, int P>
struct SplitSums {
    static constexpr int sums = 32 / P;
    const uint8_t* const x;  // what the rows' offsets count from
    uint32_t row[T] = {};
    float sum[L][T][sums] = {};

    STRATA_METHOD void turn() {
        STRATA_UNROLL
        for (int i = 0; i < L * T; ++i) {
            float(&of)[sums] = sum[i / T][i % T];
            const float first = of[0];
            STRATA_UNROLL
            for (int j = 0; j + 1 < sums; ++j) of[j] = of[j + 1];
            of[sums - 1] = first;
        }
    }

    // `first`: the first sub-block of the step; where a lane's lies is the sum of two parts.
    STRATA_METHOD void add_codes(const Codes<F::sub> (&c)[L], int first) {
        const uint8_t* const step = x + place_of<F::sub>(first);
        STRATA_UNROLL
        for (int t = 0; t < T; ++t) {
            const Quantised<F::sub> in = input<F::sub>(step + row[t]);
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) sum[l][t][0] = add<F>(c[l], in, sum[l][t][0]);
        }
    }

    // The row's sums after so many steps: value l * T + t in the lanes (l * T + t) * parts / (L * T), .. of the row.
    STRATA_METHOD float tree(int steps) {
        STRATA_ROLL
        for (; steps % sums != 0; ++steps) turn();
        float v[L * T];
        STRATA_UNROLL
        for (int i = 0; i < L * T; ++i) {
            float(&of)[sums] = sum[i / T][i % T];
            STRATA_UNROLL
            for (int half = sums / 2; half > 0; half /= 2) {
                STRATA_UNROLL
                for (int j = 0; j < half; ++j) of[j] = of[j] + of[j + half];
            }
            v[i] = of[0];
        }
        return trees<L * T, P / 2>(v);
    }
};

// Where a lane's blocks of a stage lie, from a base that all lanes share on: a step is S::step bytes further.
template <class F, int L, class S, bool by_lane = has_halves<F> && S::step % 4 == 0>
struct SplitBlocks {
    static constexpr bool steady = Layout<F>::align % 4 == 0 || S::step % 4 == 0;  // blocks lie alike in all steps
    int word[L], exact[L], number;

    STRATA_METHOD SplitBlocks(const int (&at)[L], int n) : number(n) {
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) {
            exact[l] = steady && Layout<F>::align % 4 ? keep(at[l] & 3) : 0;
            word[l] = steady ? keep(at[l] - exact[l]) : at[l];
        }
    }

    STRATA_METHOD Codes<F::sub> get(int l, const uint8_t* base, int k, const Stream& stream, int index, int subs, const Table& table) const {
        const int there = word[l] + k * S::step, at = steady ? exact[l] : there & 3;
        const uint8_t* const block = steady ? base + k * S::step + word[l] : base + (there - at);
        return factors_of<F>({reinterpret_cast<const uint32_t*>(block), static_cast<uint32_t>(at)}, number, stream, index, subs, table);
    }
};

template <class F, int L, class S>
struct SplitBlocks<F, L, S, true> {
    using Lane = typename Unpack<F>::Lane;
    Lane first, last;

    STRATA_METHOD SplitBlocks(const int (&at)[L], int n) : first(at[0], n), last(at[L - 1], n) {
        first.stay();
        if (L > 1) last.stay();
    }

    STRATA_METHOD Codes<F::sub> get(int l, const uint8_t* base, int k, const Stream&, int, int, const Table& table) const {
        Codes<F::sub> c;
        Unpack<F>::halves(base + k * S::step, l == 0 ? first : last, table, c);
        return c;
    }
};

// A unit with T rows of x, whose first stage lies in slot `slot` and is there.
template <class F, int L, int T, int P, class Work>
STRATA_INLINE void split_rows(const Work& work, const Table& table, const uint8_t* rings,
                              SplitBringing<Split<F, L, P>, L, Work>& bringing, int& slot) {
    using S = Split<F, L, P>;
    const int row = lane() / P, p = keep(lane() % P), number = keep(p % Layout<F>::subs), subs = work.cols / F::sub;
    const UnitHead head = bringing.head(slot);
    const int offset = keep(p / Layout<F>::subs * F::bytes);
    Stream streams[L] = {};
    if constexpr (Layout<F>::apart) work.streams(head, streams);
    SplitSums<F, L, T, P> sums = {work.inputs()};
    STRATA_UNROLL
    for (int t = 0; t < T; ++t) sums.row[t] = keep(work.offset(head, t < head.count ? t : 0) + place_of<F::sub>(p));
    int before[L], index = p, steps = 0;
    STRATA_UNROLL
    for (int l = 0; l < L; ++l) before[l] = head.before[l];
    STRATA_ROLL
    for (int stage = 0; stage < bringing.stages; ++stage) {
        if (stage > 0) bringing.landed();
        int at[L];  // the lane's block, from `rings` on
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) {
            const int there = static_cast<int>(bringing.place(slot) - rings) + l * S::rows * S::piece;
            at[l] = keep(there + bringing.place_of_row(before[l], row) + offset);
            before[l] += S::whole;
        }
        const SplitBlocks<F, L, S> blocks(at, number);
        STRATA_ROLL
        for (int k = 0; k < S::steps && steps * P < subs; ++k, ++steps) {
            if (index < subs) {
                Codes<F::sub> c[L];
                STRATA_UNROLL
                for (int l = 0; l < L; ++l) c[l] = blocks.get(l, rings, k, streams[l], row * subs + index, subs, table);
                sums.add_codes(c, steps * P);
            }
            sums.turn();
            index += P;
        }
        sync_warp();  // nobody reads the slot that is filled next
        bringing.next();
        slot ^= 1;
    }
    constexpr int each = P / (L * T);
    const float sum = sums.tree(steps), second = L > 1 ? shuffle_xor(sum, P / 2) : sum;
    const int value = p / each, t = value % T;
    if (p % each == 0 && value < T && row < head.rows && t < head.count) work.finish(head, row, t, sum, second);
}

// Work, what differs between launches:
//     cols, lines               values of a row; rows of a unit in each matrix
//     start()                   finds the units begin, begin + stride, .. below end of this group
//     wait()                    until x is there
//     unit(number)              a unit's head; without rows when it is not this launch's
//     streams(head, Stream*)    its rows, of one matrix or two
//     inputs(), offset(head, t) where the rows of x lie; bytes from there to row t of a unit
//     finish(head, r, t, sum, second)   called by one lane: row r of the unit with row t of x, in the first matrix and the last
template <class F, int L, int T, int P, class Work>
STRATA_INLINE void run_split(Work& work, uint32_t* table, uint8_t* rings) {
    using S = Split<F, L, P>;
    if (Unpack<F>::table_words != 0) Unpack<F>::fill(table, thread_x(), block_size());
    work.start();
    const int row_bytes = work.cols / F::block * F::bytes;
    SplitBringing<S, L, Work> bringing = {work, rings + warp() * S::bytes, work.begin, row_bytes, (row_bytes + S::whole - 1) / S::whole};
    bringing.start();
    work.wait();
    barrier();
    const Table lookup = table_of<F>(table);
    bringing.landed();
    int slot = 0;
    STRATA_ROLL
    for (;;) {
        if (bringing.head(slot).unit < 0) return;
        if (T == 2 && bringing.head(slot).count == 1) split_rows<F, L, 1, P>(work, lookup, rings, bringing, slot);
        else split_rows<F, L, T, P>(work, lookup, rings, bringing, slot);
        bringing.landed();
    }
}

}  // namespace strata::STRATA_ISA
