// The products' loop over the rows of experts, in formats with codes. A unit is some consecutive rows of a matrix, or
// of two, done by one group of 32 lanes: `parts` neighbouring lanes have a row, lane p of them its sub-blocks p, p +
// parts, .., whose terms go to its 32 / parts sums in turn. So a lane's sum is one lane's of the lane rule, x is read
// once for all rows of a unit, and rows of few sub-blocks leave no lane idle. The steps of a full stage are unrolled,
// those of another are not.
#pragma once

#include "split_bringing.h"

namespace strata::STRATA_ISA {


// The table of a format as these products read it.
template <class F>
STRATA_INLINE void fill_split(uint32_t* table) {
    if constexpr (is_mixed<F>) Unpack<F>::fill_mixed(table, thread_x());
    else if constexpr (Unpack<F>::table_words != 0) Unpack<F>::fill(table, thread_x(), block_size());
}

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
    STRATA_METHOD void add_codes(const SplitCodes<F> (&c)[L], int first) {
        const uint8_t* const step = x + place_of<F::sub>(first);
        STRATA_UNROLL
        for (int t = 0; t < T; ++t) {
            const Quantised<F::sub> in = input<F::sub>(step + row[t]);
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) sum[l][t][0] = add<F>(c[l], in, sum[l][t][0]);
        }
    }

    // The row's sums: value l * T + t in the lanes (l * T + t) * parts / (L * T), .. of the row. Sums that were turned
    // give the same: what is added to what stays.
    STRATA_METHOD float tree() {
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

    STRATA_METHOD bool alike() const { return true; }
    STRATA_METHOD SplitCodes<F> get(int l, const uint8_t* base, int k, const Stream& stream, int index, int subs, const Table& table) const {
        const int there = word[l] + k * S::step, at = steady ? exact[l] : there & 3;
        const uint8_t* const block = steady ? base + k * S::step + word[l] : base + (there - at);
        const typename Layout<F>::Block lies = {reinterpret_cast<const uint32_t*>(block), static_cast<uint32_t>(at)};
        if constexpr (is_mixed<F>) {
            MixedCodes c;
            Unpack<F>::mixed(lies, number, table, c);
            return c;
        } else {
            return factors_of<F>(lies, number, stream, index, subs, table);
        }
    }
    STRATA_METHOD SplitCodes<F> any(int l, const uint8_t* base, int k, const Stream& stream, int index, int subs, const Table& table) const {
        return get(l, base, k, stream, index, subs, table);
    }
};

// Matrices that lie alike in words, as those of an expert mostly do, share what a lane knows of its blocks.
template <class F, int L, class S>
struct SplitBlocks<F, L, S, true> {
    using Lane = typename Unpack<F>::Lane;
    Lane first;
    const int apart, number;

    STRATA_METHOD SplitBlocks(const int (&at)[L], int n) : first(at[0], n), apart(at[L - 1] - at[0]), number(n) { first.stay(); }

    STRATA_METHOD bool alike() const { return L == 1 || (apart & 3) == 0; }
    STRATA_METHOD Codes<F::sub> get(int l, const uint8_t* base, int k, const Stream&, int, int, const Table& table) const {
        Codes<F::sub> c;
        Unpack<F>::halves(base + (l == 0 ? k * S::step : apart + k * S::step), first, table, c);
        return c;
    }
    STRATA_METHOD Codes<F::sub> any(int l, const uint8_t* base, int k, const Stream& stream, int index, int subs, const Table& table) const {
        if (l == 0 || alike()) return get(l, base, k, stream, index, subs, table);
        Codes<F::sub> c;
        Unpack<F>::halves(base + k * S::step, Lane(first.scale + apart, number), table, c);
        return c;
    }
};

// What becomes of a unit's sums. Those of T rows of x with L matrices lie in P neighbouring lanes of a row: the first P
// / L of them have `sum` of the first matrix, T rows in turn, and `second` of the last. `counted`: rows of x that there
// are.
template <class Work, int T, int P>
struct SplitResults {
    static constexpr int each = P / T;
    STRATA_METHOD void take(const Work& work, const Unit& unit, int counted, float sum, float) {
        const int row = lane() / P, p = lane() % P, t = p / each;
        if (p % each == 0 && t < counted && row < work.rows_of(unit)) work.finish(unit, row, t, sum);
    }
    STRATA_METHOD void end(const Work&) {}
};

// silu takes many instructions, so a lane keeps a row's sums until each lane has some.
template <class F, int T, int P>
struct SplitResults<GateUpWork<F, T>, T, P> {
    static constexpr int each = P / (2 * T);
    float gate = 0.0f, up = 0.0f;
    int place = -1;
    int turn = 0;

    STRATA_METHOD void take(const GateUpWork<F, T>& work, const Unit& unit, int counted, float sum, float second) {
        const int row = lane() / P, p = lane() % P, t = p / each;
        if (p % each == turn && t < counted && row < work.rows_of(unit)) {
            const Job& k = work.known[unit.job];
            gate = sum * k.scale[gate_matrix], up = second * k.scale[up_matrix];
            place = k.pair[t] * static_cast<int>(work.width) + unit.first + row;
        }
        if (++turn == each) end(work);
    }
    STRATA_METHOD void end(const GateUpWork<F, T>& work) {
        if (place >= 0) work.h[place] = silu(gate) * up;
        place = -1, turn = 0;
    }
};

// What a lane does in every unit: its row of the unit and part of that row; of its sub-block, the number in its block,
// where the block lies from a step's first one on, and where x lies from a row's beginning on.
template <class F, int P>
struct SplitLane {
    const int row = lane() / P, p = keep(lane() % P), number = keep(p % Layout<F>::subs);
    const int offset = keep(p / Layout<F>::subs * F::bytes), input = keep(place_of<F::sub>(p));
};

// A unit with T rows of x; `turn`: stages that the group has computed.
template <class F, int L, int T, int P, class Work, class Bringing, class Results>
STRATA_INLINE void split_rows(const Work& work, const Unit& unit, const SplitLane<F, P>& mine, const Table& table, const uint8_t* rings,
                              Bringing& bringing, uint32_t& turn, Results& results) {
    using S = Split<F, L, P>;
    const int row = mine.row, subs = work.cols / F::sub, count = work.known[unit.job].count;
    Stream streams[L] = {};
    if constexpr (Layout<F>::apart) {
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) streams[l] = work.stream(unit, l);
    }
    SplitSums<F, L, T, P> sums = {work.codes};
    STRATA_UNROLL
    for (int t = 0; t < T; ++t) sums.row[t] = keep(work.place_of_input(unit.job, t < count ? t : 0) + mine.input);
    int before[L];
    STRATA_UNROLL
    for (int l = 0; l < L; ++l) before[l] = bringing.before(unit, l);
    STRATA_ROLL
    for (int stage = 0; stage < bringing.stages; ++stage) {
        const int slot = static_cast<int>(turn % S::depth);
        arrived<S::ahead - 1>(bringing.arrival(slot), static_cast<int>(turn / S::depth));
        if (S::ahead < S::depth) bringing.next();
        int at[L];  // the lane's block, from `rings` on
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) {
            const uint8_t* const place = bringing.place(slot, l);
            at[l] = static_cast<int>(place - rings) + bringing.place_of_row(place, before[l], row) + mine.offset;
            before[l] += S::whole;
        }
        const SplitBlocks<F, L, S> blocks(at, mine.number);
        SplitCodes<F> c[L];
        const int from = S::long_stages ? 0 : stage * S::steps;
        if (blocks.alike() && (!S::long_stages || stage == 0) && (from + S::steps) * P <= subs) {  // every lane has a sub-block in each step
            STRATA_UNROLL
            for (int k = 0; k < S::steps; ++k) {
                STRATA_UNROLL
                for (int l = 0; l < L; ++l) c[l] = blocks.get(l, rings, k, streams[l], row * subs + (from + k) * P + mine.p, subs, table);
                sums.add_codes(c, (from + k) * P), sums.turn();
            }
        } else {
            STRATA_ROLL
            for (int k = 0, n = stage * S::steps * P; k < S::steps && n < subs; ++k, n += P) {
                STRATA_UNROLL
                for (int l = 0; l < L && n + mine.p < subs; ++l) c[l] = blocks.any(l, rings, k, streams[l], row * subs + n + mine.p, subs, table);
                if (n + mine.p < subs) sums.add_codes(c, n);
                sums.turn();
            }
        }
        sync_warp();  // nobody reads the slot that is filled next
        if (S::ahead == S::depth) bringing.next();
        ++turn;
    }
    const float sum = sums.tree();
    results.take(work, unit, count, sum, L > 1 ? shuffle_xor(sum, P / 2) : sum);
}

// The group's units; what they asked for first is on its way.
template <class F, int L, int T, int P, class Work, class Bringing>
STRATA_INLINE void split_units(const Work& work, const Table& table, const uint8_t* rings, Bringing& bringing, uint32_t& turn) {
    const SplitLane<F, P> mine;
    SplitResults<Work, T, P> results;
    Unit unit = work.unit_of(work.begin);
    STRATA_ROLL
    for (;; work.advance(unit)) {
        bringing.find(unit);
        if (unit.number >= work.end) break;
        if (T == 2 && work.known[unit.job].count == 1) split_rows<F, L, 1, P>(work, unit, mine, table, rings, bringing, turn, results);
        else split_rows<F, L, T, P>(work, unit, mine, table, rings, bringing, turn, results);
    }
    results.end(work);
}

// Work, what differs between launches (expert_work.h):
//     cols, lines, codes        values of a row; rows of a unit in each matrix; the rows of x, in shared memory
//     start()                   finds the units begin, begin + stride, .. below end of this group
//     ask_first(), ask_later()  ask for the rows of x, before any weights or after some
//     wait_for_rows<asked>()    until they are in `codes`, for all threads after a barrier; weights were asked for so
//     often since unit_of(number), advance(unit)   a unit, and the group's next one; has(unit): whether it is this
//     launch's rows_of(unit), data(job, l), stream(unit, l)   its rows, of one matrix or two
template <class F, int L, int T, int P, class Work>
STRATA_INLINE void run_split(Work& work, uint32_t* table, uint8_t* rings) {
    using S = Split<F, L, P>;
    fill_split<F>(table);
    work.start();
    SplitBringing<S, L, Work> bringing(work, rings + warp() * S::bytes, static_cast<int>(row_bytes<F>(work.cols)));
    bringing.start();
    work.ask_first();
    bringing.next();
    work.ask_later();
    STRATA_UNROLL
    for (int i = 1; i < S::ahead; ++i) bringing.next();
    work.template wait_for_rows<S::ahead>();
    barrier();
    uint32_t turn = 0;
    split_units<F, L, T, P>(work, table_of<F>(table), rings, bringing, turn);
}

}  // namespace strata::STRATA_ISA
