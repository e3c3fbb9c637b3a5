// Choice of experts: a group of 32 lanes for each row; bits as route/naive.py.
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

// The best expert of this lane: its rank (0: none is left) and the lower id among equals.
struct Best {
    uint32_t rank;
    int id;
};

STRATA_INLINE Best best_of_lane(const uint32_t* ranks, int experts) {
    constexpr int batch = 8;  // asked for before the first is looked at: the others wait for this lane
    Best best = {0, 0x7fffffff};
    for (int i = lane(); i < experts; i += 32 * batch) {
        uint32_t rank[batch];
        UNROLL
        for (int k = 0; k < batch; ++k) rank[k] = i + 32 * k < experts ? ranks[i + 32 * k] : 0;
        UNROLL
        for (int k = 0; k < batch; ++k)
            if (rank[k] > best.rank) best = {rank[k], i + 32 * k};
    }
    return best;
}

// Brings a row into shared memory, eight values of a lane at once, and gives each lane its largest.
STRATA_INLINE float bring(const float* x, float* p, int experts) {
    constexpr int batch = 8;
    float top = -infinity();
    for (int i = lane(); i < experts; i += 32 * batch) {
        float value[batch];
        UNROLL
        for (int k = 0; k < batch; ++k) value[k] = i + 32 * k < experts ? x[i + 32 * k] : 0.0f;
        UNROLL
        for (int k = 0; k < batch; ++k)
            if (i + 32 * k < experts) {
                p[i + 32 * k] = value[k];
                top = value[k] > top ? value[k] : top;
            }
    }
    return top;
}

// logits [rows, experts] -> ids, weights [rows, top_k]. Shared memory of a group of lanes: 8 bytes per expert, 4 per place.
STRATA_KERNEL(route, (const float* logits, int32_t* ids, float* weights, int64_t rows, int64_t num_experts,
                      int64_t top_k, int64_t renormalise)) {
    in_turn();
    DYNAMIC_SHARED(float, memory);
    const int64_t row = static_cast<int64_t>(block_x()) * (block_size() / 32) + warp();
    if (row >= rows) return;  // a whole group of lanes
    const int experts = static_cast<int>(num_experts), chosen = static_cast<int>(top_k);
    const float* x = logits + row * experts;
    float* p = memory + warp() * (2 * experts + chosen);
    auto* ranks = reinterpret_cast<uint32_t*>(p + experts);
    auto* picked = reinterpret_cast<int32_t*>(ranks + experts);
    const float top = lane_largest(bring(x, p, experts));
    float total = 0.0f;
    for (int i = lane(); i < experts; i += 32) {
        p[i] = shared_exp(p[i] - top);
        total = total + p[i];
    }
    total = lane_tree(total);
    for (int i = lane(); i < experts; i += 32) {
        p[i] = p[i] / total;
        ranks[i] = p[i] != p[i] ? 1 : bits_of_float(p[i]) + 1;  // p is +0 or above: its bits order it
    }
    Best best = best_of_lane(ranks, experts);
    float sum = 0.0f;
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
        sum = k ? sum + p[id] : p[id];
    }
    sync_warp();
    for (int k = lane(); k < chosen; k += 32) {
        const float weight = p[picked[k]];
        ids[row * chosen + k] = picked[k];
        weights[row * chosen + k] = renormalise ? weight / sum : weight;
    }
}

}  // namespace strata::STRATA_ISA
