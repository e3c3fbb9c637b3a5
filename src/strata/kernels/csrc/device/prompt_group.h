// The pairs (row, rank) of many rows sorted by expert, and cut into tiles of up to 64 or 192. The order of an expert's
// pairs is left to chance: rows do not depend on their neighbours, so no result shows it.
#pragma once

#include "expert_table.h"
#include "prompt_layout.h"

namespace strata::STRATA_ISA {

constexpr int group_threads = 256;

// counts [experts], zeros before: pairs of each expert that this device computes, those of tiers up to `tier`.
STRATA_KERNEL(prompt_count, (const int32_t* ids, const ExpertEntry* table, int32_t* counts, int64_t pairs, int64_t tier)) {
    const int64_t at = element();
    if (at < pairs && tier_of(table[ids[at]]) <= tier) atomic_add(counts + ids[at], 1);
}

STRATA_KERNEL(prompt_zero, (int32_t* counts, int64_t experts)) {
    const int64_t at = element();
    if (at < experts) counts[at] = 0;
}

// The sum of what the threads before this one hold; every thread of the block comes here.
STRATA_INLINE int32_t sum_before(int32_t value, int32_t* shared, int32_t& all) {
    shared[thread_x()] = value;
    barrier();
    for (int step = 1; step < group_threads; step *= 2) {
        const int32_t other = thread_x() >= step ? shared[thread_x() - step] : 0;
        barrier();
        shared[thread_x()] += other;
        barrier();
    }
    all = shared[group_threads - 1];
    const int32_t before = shared[thread_x()] - value;
    barrier();
    return before;
}

// counts -> cursors [experts], where each expert's pairs begin; tile_starts [experts + 1] and the tiles. One block.
STRATA_KERNEL_OF(group_threads, prompt_scan,
                 (const int32_t* counts, int32_t* cursors, int32_t* tile_starts, RowsTile* tiles, int64_t experts,
                  int64_t tile_rows)) {
    SHARED(int32_t, shared, group_threads);
    const int32_t most = static_cast<int32_t>(tile_rows);
    int32_t pairs_before = 0, tiles_before = 0, packed_before = 0;
    for (int64_t first = 0; first < experts; first += group_threads) {
        const int64_t expert = first + thread_x();
        const int32_t count = expert < experts ? counts[expert] : 0;
        const int32_t own = (count + most - 1) / most;
        int32_t all_pairs, all_tiles, all_packed;
        const int32_t pair = pairs_before + sum_before(count, shared, all_pairs);
        const int32_t tile = tiles_before + sum_before(own, shared, all_tiles);
        const int32_t packed = packed_before + sum_before((count + record_rows - 1) / record_rows, shared, all_packed);
        if (expert < experts) {
            cursors[expert] = pair;
            tile_starts[expert] = tile;
        }
        for (int32_t i = 0; i < own; ++i) {
            const int32_t left = count - i * most;
            tiles[tile + i] = {static_cast<int32_t>(expert), pair + i * most, left < most ? left : most,
                               packed + i * (most / record_rows)};
        }
        pairs_before += all_pairs;
        tiles_before += all_tiles;
        packed_before += all_packed;
    }
    if (thread_x() == 0) tile_starts[experts] = tiles_before;
}

// Every pair to its place among the sorted ones; cursors move on.
STRATA_KERNEL(prompt_fill, (const int32_t* ids, const ExpertEntry* table, int32_t* cursors, int32_t* sorted, int64_t pairs,
                            int64_t tier)) {
    const int64_t at = element();
    if (at < pairs && tier_of(table[ids[at]]) <= tier) sorted[atomic_add(cursors + ids[at], 1)] = static_cast<int32_t>(at);
}

// What the rendezvous would have counted of a call in which the device computes everything: a ledger (rendezvous.h;
// entries and distinct experts by tier, calls) and the experts' uses. The split learns nothing from it. One block.
STRATA_KERNEL_OF(group_threads, prompt_ledger,
                 (const int32_t* counts, const ExpertEntry* table, int64_t* ledger, int32_t* uses, int64_t experts)) {
    SHARED(int32_t, totals, 6);
    if (thread_x() < 6) totals[thread_x()] = 0;
    barrier();
    for (int64_t e = thread_x(); e < experts; e += group_threads) {
        if (counts[e] == 0) continue;
        const int tier = tier_of(table[e]);
        atomic_add(totals + tier, counts[e]);
        atomic_add(totals + 3 + tier, 1);
        uses[e] += counts[e];
    }
    barrier();
    if (thread_x() < 6) ledger[thread_x()] += totals[thread_x()];
    else if (thread_x() < 11) ledger[thread_x()] = 0;  // of the last call
    else if (thread_x() == 11) ledger[11] += 1;
}

}  // namespace strata::STRATA_ISA
