// Rows of x in shared memory as products in rounds take them (products_runs.h), and how a round's shared memory is
// divided.
#pragma once

#include "products_work.h"
#include "runs.h"

namespace strata::STRATA_ISA {

constexpr int round_teams = 4, round_lines = round_teams * run_lines, round_groups = round_teams * run_parts;
constexpr int round_threads = 32 * (round_groups + 1);

// Shared memory: scales of every group, sums of two rounds, x, slots; kernels/linear/rounds.py computes the same.
template <class F, int N>
struct Round {
    static constexpr int step = Step<F>::bytes;
    static constexpr int scales = run_subs * run_lines * (F::minima ? 8 : 4);  // of a run, twice for each group
    static constexpr int sums = round_groups * run_lines * 8 * N * 4;
    static constexpr int codes = 32 * 2 * F::sub / 4;      // of x: two sub-blocks of a run, of 8 rows
    static constexpr int record = N * (codes + 128) + 16;  // the same with scales; eight of them meet no bank twice
    static constexpr int before_sums = round_groups * 2 * scales, before_x = before_sums + 2 * sums;
    static constexpr int most_slots = 7;

    STRATA_INLINE int x_bytes(int subs) { return (subs + 7) / 8 * 4 * record; }
    // From a row to the next in a slot: an odd multiple of 16, with room for lines that are not filled, and reads past
    // the end.
    STRATA_INLINE int pitch(int bytes) { return ((bytes + 15 + 8 + 15) / 16 | 1) * 16; }
};

// x as lanes take it, two sub-blocks k of a run one after the other: an A of mma_s8 for both at once, rows 0-7 for the
// first and 8-15 for the second, or for N = 2 an A of 16 rows for each; then for each row and sub-block d and the
// negative of its sum. A group brings 16 bytes of each sub-block of a step of one row at once; what lies behind the
// last is never used. Blocks begin at different places, for all read the same lines.
template <class F, int N, class Work>
STRATA_INLINE void stage_runs(const Work& work, uint8_t* x, int subs) {
    using S = Round<F, N>;
    constexpr int batch = 4, words = F::sub / 16, pieces = words + 1;  // words: of a lane, in a sub-block
    const uint32_t group = shuffle(warp(), 0), count = work.count(0), steps = (subs + 31) / 32, all = steps * pieces;
    const uint32_t row = group % count, start = group / count, stride = round_groups / count, turned = block_x() % all;
    if (start >= stride) return;
    const int p = lane(), index = F::sub == 32 ? p : (p >> 2 & 1) << 4 | (p >> 1 & 1) << 3 | p >> 3 << 1 | (p & 1);
    const int n = row / 8, t = row % 8, k = index / 4 % 2, end = (subs + 7) / 8 * 8 - index;
    const uint8_t* const source = work.input(0, row) + 16 * p;
    uint8_t* const record = x + (index / 8 * 4 + index % 4) * S::record;
    uint8_t* const codes = record + (N == 2 ? k * S::codes : 0) + 32 * words * t + 4 * (N == 2 ? n : k);
    uint8_t* const scales = record + N * S::codes + n * 128 + t * 16 + k * 8;
    STRATA_ROLL
    for (uint32_t first = start; first < all; first += batch * stride) {
        Words4 held[batch];
        uint32_t at[batch];
        STRATA_UNROLL
        for (int b = 0; b < batch; ++b) {
            const uint32_t task = first + b * stride, own = task + turned;
            at[b] = task < all ? own < all ? own : own - all : ~0u;
            if (task < all) held[b] = load16(source + at[b] / pieces * Record<F::sub>::bytes + at[b] % pieces * 512);
        }
        STRATA_UNROLL
        for (int b = 0; b < batch; ++b) {
            const int step = at[b] / pieces, piece = at[b] % pieces, there = step * 16 * S::record;
            if (at[b] == ~0u || 32 * step >= end) continue;
            if (piece == words) {
                *reinterpret_cast<Words2*>(scales + there) = {{held[b].w[0], held[b].w[2]}};
                continue;
            }
            STRATA_UNROLL
            for (int i = 0; i < 4; ++i) {
                *reinterpret_cast<uint32_t*>(codes + there + i * 8 * words + 8 * (words == 2 ? piece : 0)) = held[b].w[i];
            }
        }
    }
}

}  // namespace strata::STRATA_ISA
