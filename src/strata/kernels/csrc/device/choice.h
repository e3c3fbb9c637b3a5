// Choice of experts of a row by a block; bits as route/naive.py.
//
// Every thread computes its experts' probabilities. Their sum is the lane rule's, which each group of lanes makes for
// itself. The first group chooses: of 32 groups of experts the best of the top_k best groups bound what can be chosen,
// which leaves few candidates, and a candidate's rank is the number of those before it.
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

constexpr int route_threads = 256;  // of the block
constexpr int route_held = 2;       // logits that a thread asks for at once

// Orders probabilities, which are +0 and above, by their bits; NaN comes last, and 0 is none at all.
STRATA_INLINE uint32_t rank_of(float p) { return p != p ? 1 : bits_of_float(p) + 1; }

STRATA_INLINE float largest_of_block(float v, float* shared) {
    v = lane_largest(v);
    if (lane() == 0) shared[warp()] = v;
    barrier();
    UNROLL
    for (int w = 0; w < route_threads / 32; ++w) v = shared[w] > v ? shared[w] : v;
    return v;
}

// How many of the first `count` lanes hold a larger key, or the same one in a lower lane.
STRATA_INLINE int before_lane(uint32_t key, int count) {
    int before = 0;
    UNROLL_BY(8)
    for (int l = 0; l < count; ++l) {
        const uint32_t other = shuffle(key, l);
        before += other > key || (other == key && l < lane());
    }
    return before;
}

// The first `chosen` experts, up to 32, to `picked`, where at most 32 are candidates; false, and nothing, otherwise.
STRATA_INLINE bool choose_few(const float* p, int experts, int chosen, int32_t* candidates, int32_t* picked) {
    uint32_t best = 0;
    UNROLL_BY(4)
    for (int i = lane(); i < experts; i += 32) {
        const uint32_t rank = rank_of(p[i]);
        best = rank > best ? rank : best;
    }
    const uint32_t one = ballot(before_lane(best, 32) == chosen - 1);
    const uint32_t bound = shuffle(best, count_bits(one - 1));
    int count = 0;
    UNROLL_BY(4)
    for (int base = 0; base < experts; base += 32) {
        const int i = base + lane();
        const bool is = i < experts && rank_of(p[i]) >= bound;
        const uint32_t all = ballot(is);
        const int place = count + count_bits(all & ((1u << lane()) - 1));
        if (is && place < 32) candidates[place] = i;
        count += count_bits(all);
    }
    if (count > 32) return false;
    sync_warp();
    const int id = lane() < count ? candidates[lane()] : 0;
    const int rank = before_lane(lane() < count ? rank_of(p[id]) : 0, count);
    if (lane() < count && rank < chosen) picked[rank] = id;
    return true;
}

// The best expert of this lane: its rank (0: none is left) and the lower id among equals.
struct Best {
    uint32_t rank;
    int id;
};

STRATA_INLINE Best best_of_lane(const uint32_t* ranks, int experts) {
    Best best = {0, 0x7fffffff};
    KEEP_ROLLED
    for (int i = lane(); i < experts; i += 32)
        if (ranks[i] > best.rank) best = {ranks[i], i};
    return best;
}

// The same for any number of experts, one after the other; `ranks` [experts] is scratch.
STRATA_INLINE void choose_many(const float* p, int experts, int chosen, uint32_t* ranks, int32_t* picked) {
    KEEP_ROLLED  // few rows come here
    for (int i = lane(); i < experts; i += 32) ranks[i] = rank_of(p[i]);
    Best best = best_of_lane(ranks, experts);
    KEEP_ROLLED
    for (int k = 0; k < chosen; ++k) {
        const uint32_t rank = largest_of_lanes(best.rank);
        uint32_t from_end = best.rank == rank ? 0x7fffffffu - static_cast<uint32_t>(best.id) : 0;
        from_end = largest_of_lanes(from_end);
        const int id = static_cast<int>(0x7fffffffu - from_end);
        if (id % 32 == lane()) {
            picked[k] = id;
            ranks[id] = 0;
            best = best_of_lane(ranks, experts);
        }
        sync_warp();
    }
}

// The sum of `chosen` values in order, in every lane; value k is that of lane k % 32 in round k / 32.
STRATA_INLINE float sum_in_order(const float* p, const int32_t* picked, int chosen) {
    float sum = 0.0f;
    KEEP_ROLLED
    for (int base = 0; base < chosen; base += 32) {
        const float own = base + lane() < chosen ? p[picked[base + lane()]] : 0.0f;
        const int here = least(32, chosen - base);
        UNROLL_BY(4)
        for (int k = 0; k < here; ++k) {
            const float next = shuffle(own, k);
            sum = base + k > 0 ? sum + next : next;
        }
    }
    return sum;
}

// logits [experts] -> ids, weights [chosen]. `e`: float [2 * experts] of shared memory; `picked` [chosen] too, which
// the first group of lanes has filled when it returns, after the others. All threads of a block of route_threads.
STRATA_INLINE void route_row(const float* logits, int32_t* ids, float* weights, int experts, int chosen, bool renormalise,
                             float* e, int32_t* picked) {
    SHARED(float, tops, route_threads / 32);
    SHARED(int32_t, candidates, 32);
    float* const p = e + experts;
    float top = -infinity(), own[route_held];
    UNROLL
    for (int k = 0; k < route_held; ++k) {  // asked for at once
        const int i = thread_x() + k * route_threads;
        own[k] = i < experts ? logits[i] : -infinity();
    }
    UNROLL
    for (int k = 0; k < route_held; ++k) {
        const int i = thread_x() + k * route_threads;
        if (i < experts) e[i] = own[k];
        top = own[k] > top ? own[k] : top;
    }
    KEEP_ROLLED
    for (int i = thread_x() + route_held * route_threads; i < experts; i += route_threads) {
        e[i] = logits[i];
        top = e[i] > top ? e[i] : top;
    }
    top = largest_of_block(top, tops);
    KEEP_ROLLED  // short code: it is fetched anew for every launch
    for (int i = thread_x(); i < experts; i += route_threads) e[i] = shared_exp(e[i] - top);
    barrier();
    float total = 0.0f;
    UNROLL_BY(8)
    for (int i = lane(); i < experts; i += 32) total = total + e[i];
    total = lane_tree(total);
    KEEP_ROLLED
    for (int i = thread_x(); i < experts; i += route_threads) p[i] = e[i] / total;
    barrier();
    if (warp() > 0) return;
    if (chosen > 32 || !choose_few(p, experts, chosen, candidates, picked))
        choose_many(p, experts, chosen, reinterpret_cast<uint32_t*>(e), picked);
    sync_warp();
    const float sum = sum_in_order(p, picked, chosen);
    KEEP_ROLLED
    for (int k = lane(); k < chosen; k += 32) {
        const float weight = p[picked[k]];
        ids[k] = picked[k];
        weights[k] = renormalise ? weight / sum : weight;
    }
}

}  // namespace strata::STRATA_ISA
