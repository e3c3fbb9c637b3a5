// Products with several rows of x on matrix units. A block has rounds of 32 rows of weights, one after the other: four
// groups, a team, share eight rows; part p of them has the runs p (runs.h), and keeps the sums of eight lanes of the
// lane rule. One group more brings rows to shared memory by bulk copies, into a ring of slots, each a round's rows or a
// piece of them; as many as fit are asked for before x is there. It also finishes what the teams leave of a round, but
// for the last.
#pragma once

#include "arrivals.h"
#include "matrix.h"
#include "round_inputs.h"

namespace strata::STRATA_ISA {

// What the bringing group knows and the others need: of each slot where its rows begin in their lines, of each round
// where its results go.
struct RoundNotes {
    static constexpr int rounds = 8;
    int32_t* before;       // [slots][round_lines]
    RoundResult* results;  // [rounds][round_teams]
};

// Brings rows: a lane has one row of every round, or two.
template <class Work>
struct RoundBringing {
    static constexpr int each = (round_lines + 31) / 32;
    const Work& work;
    uint8_t* const ring;
    uint64_t* const arrivals;
    const RoundNotes notes;
    const int row_bytes, piece, pitch, slots;  // piece: bytes of a row in a slot
    int unit, number = 0, done = 0, slot = 0;  // unit: the first one of the next round
    const uint8_t* source[each] = {};

    STRATA_METHOD void find(int i, int line) {
        const int own = unit + line / run_lines, row = line % run_lines;
        Stream stream = {};
        if (own < work.end) work.streams(own, &stream);
        source[i] = row < stream.rows ? stream.data + row * row_bytes : nullptr;
        if (row == 0) {
            RoundResult result = {nullptr, 0, 0.0f, 0};
            if (own < work.end) result = work.result(own);
            notes.results[number % RoundNotes::rounds * round_teams + line / run_lines] = result;
        }
    }

    STRATA_METHOD void next() {
        if (unit >= work.end) return;
        STRATA_UNROLL
        for (int i = 0; i < each; ++i) {
            const int line = lane() + 32 * i;
            if (line >= round_lines) break;
            if (done == 0) find(i, line);
            const int left = row_bytes - done, count = left < piece ? left : piece, before = line_offset(source[i]);
            notes.before[slot * round_lines + line] = before;
            bring<1>(arrivals + slot, ring + (slot * round_lines + line) * pitch, source[i] - before,
                     source[i] ? (before + count + 15) & ~15 : 0);
            if (source[i]) source[i] += piece;
        }
        asked();
        done += piece;
        if (done >= row_bytes) done = 0, unit += round_teams, ++number;
        slot = slot + 1 == slots ? 0 : slot + 1;
    }
};

// What a thread adds up of eight rows of weights: rows of x lane() / 4 and 8 more, of weights 2 (lane() % 4) and one
// more.
template <class F, int N>
struct RunSums {
    using S = Round<F, N>;
    using Lane = typename Run<F>::Lane;
    float acc[run_subs][2 * N] = {};

    // base, lane: the rows' bytes; x: the group's first record of the step; own: the run's scales.
    STRATA_METHOD void add_step(const uint8_t* base, const Lane& lane_of, const uint8_t* x, const float* own) {
        STRATA_UNROLL
        for (int q = 0; q < 4; ++q) add_pair(base, lane_of, x, q, own);
    }
    // The same of a step of which the group has `subs` sub-blocks.
    STRATA_METHOD void add_last_step(const uint8_t* base, const Lane& lane_of, const uint8_t* x, int subs, const float* own) {
        STRATA_UNROLL
        for (int q = 0; q < 4; ++q) {
            if (2 * q < subs) add_pair(base, lane_of, x, q, own);  // of blocks of 256 there are pairs
        }
    }

    // Every lane unpacks two of the 64 scales of a run.
    STRATA_INLINE void bring_scales(const uint8_t* base, const Lane& lane_of, float* own) {
        float s[2], m[2];
        Run<F>::scales(base, lane_of, s, m);
        float* const to = own + (lane() % 4 * 2 * run_lines + lane() / 4) * scale_words;
        STRATA_UNROLL
        for (int i = 0; i < 2; ++i) {
            float* const at = to + i * run_lines * scale_words;
            if constexpr (F::minima) *reinterpret_cast<Words2*>(at) = {{bits_of_float(s[i]), bits_of_float(m[i])}};
            else *at = s[i];
        }
    }

private:
    static constexpr int scale_words = F::minima ? 2 : 1, words = F::sub / 16;  // words: of a lane, in a sub-block

    STRATA_METHOD void add_pair(const uint8_t* base, const Lane& lane_of, const uint8_t* step, int q, const float* own) {
        const uint8_t* const x = step + 4 * q * S::record;
        uint32_t w[2][words];
        Words4 rest[N];
        Run<F>::pair(base, lane_of, q, w);
        STRATA_UNROLL
        for (int n = 0; n < N; ++n) rest[n] = load16(x + N * S::codes + n * 128 + lane() / 4 * 16);
        STRATA_UNROLL
        for (int k = 0; k < 2; ++k) {
            float scale[2], minimum[2] = {};
            const float* const from = own + ((2 * q + k) * run_lines + lane() % 4 * 2) * scale_words;
            if constexpr (F::minima) {
                const Words4 four = load16(from);
                scale[0] = float_of_bits(four.w[0]), minimum[0] = float_of_bits(four.w[1]);
                scale[1] = float_of_bits(four.w[2]), minimum[1] = float_of_bits(four.w[3]);
            } else {
                const Words2 two = load8(from);
                scale[0] = float_of_bits(two.w[0]), scale[1] = float_of_bits(two.w[1]);
            }
            int32_t sum[4];
            if constexpr (words == 2) {
                const Words4 a = load16(x + (N == 2 ? k * 512 : 0) + 16 * lane());
                mma_s8(sum, a.w, w[k][0], w[k][1], 0);
            } else {
                const Words2 a = load8(x + (N == 2 ? k * 256 : 0) + 8 * lane());
                mma_s8_half(sum, a.w[0], a.w[1], w[k][0], 0);
            }
            STRATA_UNROLL
            for (int i = 0; i < 2 * N; ++i) {
                const float d = float_of_bits(rest[i / 2].w[2 * k]), least = float_of_bits(rest[i / 2].w[2 * k + 1]);
                float& to = acc[2 * q + k][i];
                float whole = static_cast<float>(sum[N == 1 ? 2 * k + i : i]);
                if constexpr (Run<F>::bias != 0) whole = fma(least, static_cast<float>(Run<F>::bias), whole);  // exact
                to = fma(whole, scale[i % 2] * d, to);
                if constexpr (F::minima) to = fma(least, minimum[i % 2] * d, to);
            }
        }
    }

public:
    // The first three levels of the tree, to sums [row of x][row].
    STRATA_METHOD void leave(float* sums) const {
        STRATA_UNROLL
        for (int n = 0; n < N; ++n) {
            float v[2];
            STRATA_UNROLL
            for (int i = 0; i < 2; ++i) {
                const int j = 2 * n + i;
                v[i] = ((acc[0][j] + acc[4][j]) + (acc[2][j] + acc[6][j])) +
                       ((acc[1][j] + acc[5][j]) + (acc[3][j] + acc[7][j]));
            }
            float* const to = sums + (8 * n + lane() / 4) * run_lines + lane() % 4 * 2;
            *reinterpret_cast<Words2*>(to) = {{bits_of_float(v[0]), bits_of_float(v[1])}};
        }
    }
};

// The other two levels: each of `threads` threads has some results of a round.
template <int N>
STRATA_INLINE void finish_round(const RoundResult* results, const float* sums, int count, int thread, int threads) {
    constexpr int each = 8 * N * run_lines;
    STRATA_ROLL
    for (int i = thread; i < round_teams * each; i += threads) {
        const int team = i / each, t = i % each / run_lines, row = i % run_lines;
        const RoundResult& result = results[team];
        const float* const v = sums + team * run_parts * each + i % each;
        const float sum = (v[0] + v[2 * each]) + (v[each] + v[3 * each]);
        if (row < result.rows && t < count) result.to[t * result.stride + row] = sum * result.scale;
    }
}

// What a group of a team adds up in one slot: `steps` steps from step `from` of the rows on.
template <class F, int N>
STRATA_INLINE void add_slot(RunSums<F, N>& of, const uint8_t* ring, const typename Run<F>::Lane& lane_of,
                            const uint8_t* x, int steps, int from, int part, int subs, float* scales) {
    using S = Round<F, N>;
    constexpr int half = S::scales / 4;
    of.bring_scales(ring, lane_of, scales);
    sync_warp();
    STRATA_ROLL
    for (int step = 0; step < steps; ++step) {
        const uint8_t *const base = ring + step * S::step, *const x_here = x + ((from + step) * 16 + part) * S::record;
        if (step + 1 < steps) of.bring_scales(base + S::step, lane_of, scales + (step + 1) % 2 * half);
        const int left = subs - 32 * (from + step);
        if (left >= 32) of.add_step(base, lane_of, x_here, scales + step % 2 * half);
        else of.add_last_step(base, lane_of, x_here, (left - part + 3) / 4, scales + step % 2 * half);
        sync_warp();
    }
}

// Work as LinearWork, with units of run_lines rows; `slots` of the ring, for `each` steps of a round's rows.
template <class F, int N, class Work>
STRATA_INLINE void run_rounds(Work& work, unsigned char* shared, int slots, int each) {
    using S = Round<F, N>;
    SHARED(uint64_t, arrivals, S::most_slots + 1);
    SHARED(int32_t, before, S::most_slots * round_lines);
    SHARED(RoundResult, results, RoundNotes::rounds * round_teams);
    const int subs = work.cols / F::sub, row_bytes = work.cols / F::block * F::bytes, steps = (subs + 31) / 32;
    const int piece = each * S::step, pitch = S::pitch(row_bytes < piece ? row_bytes : piece), count = work.count(0);
    float* const sums = reinterpret_cast<float*>(shared + S::before_sums);
    uint8_t *const x = shared + S::before_x, *const ring = x + S::x_bytes(subs);
    work.start();
    const int group = shuffle(warp(), 0), team = group / run_parts, first = work.begin - group;
    const bool brings = group == round_groups;
    float* const scales = reinterpret_cast<float*>(shared) + group * 2 * (S::scales / 4);
    RoundBringing<Work> bringing = {work, ring, arrivals, {before, results}, row_bytes, piece, pitch, slots, first};
    if (brings) {
        if (lane() < slots) expect(arrivals + lane(), round_lines);
        sync_warp();
        STRATA_ROLL
        for (int i = 0; i < slots; ++i) bringing.next();
    }
    work.wait();
    if (!brings) stage_runs<F, N>(work, x, subs);
    barrier();
    int slot = 0, turn = 0, number = 0;
    STRATA_ROLL
    for (int unit = first; unit < work.end; unit += round_teams, ++number) {
        const int part = (group + team + number) % run_parts;  // a scheduler's groups have different ones
        float* const sums_here = sums + number % 2 * (S::sums / 4);
        const RoundResult* const results_here = results + number % RoundNotes::rounds * round_teams;
        RunSums<F, N> of;
        STRATA_ROLL
        for (int done = 0; done < steps; done += each) {
            arrived_for_all(arrivals + slot, turn);
            if (!brings && unit + team < work.end) {
                const int line = slot * round_lines + team * run_lines + lane() / 4;
                const typename Run<F>::Lane lane_of(line * pitch + before[line], part);
                const int here = each < steps - done ? each : steps - done;
                add_slot<F, N>(of, ring, lane_of, x, here, done, part, subs, scales);
                if (done + each >= steps) of.leave(sums_here + (team * run_parts + part) * 8 * N * run_lines);
            }
            barrier();  // the slot is used up, and sums are there
            if (brings) bringing.next();
            if (++slot == slots) slot = 0, ++turn;
        }
        if (unit + round_teams >= work.end) finish_round<N>(results_here, sums_here, count, thread_x(), block_size());
        else if (brings) finish_round<N>(results_here, sums_here, count, lane(), 32);
    }
}

}  // namespace strata::STRATA_ISA
