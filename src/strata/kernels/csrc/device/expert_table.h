// Where the experts of a layer are, and which of them a step needs. Layouts: kernels/experts/table.py.
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

enum Kind { gate_matrix = 0, up_matrix = 1, down_matrix = 2 };

// int64 [experts][10]: addresses of gate, up and down; of their planes of scales, or 0; the bits of their float32
// scales; then the codes of their formats in bytes 0 .. 2, and in byte 3 the tier: 0 when this device computes it.
struct ExpertEntry {
    int64_t data[3], scales[3], scale_bits[3];
    int64_t formats;
};

STRATA_INLINE int format_of(const ExpertEntry& entry, int kind) { return static_cast<int>(entry.formats >> 8 * kind & 255); }
STRATA_INLINE int tier_of(const ExpertEntry& entry) { return static_cast<int>(entry.formats >> 24 & 255); }

constexpr int job_pairs = 2;

// An expert with up to 2 of the pairs (row, rank) that chose it; a pair is row * top_k + rank. Then what the table says
// of it.
struct alignas(16) Job {
    int32_t expert, count;
    int32_t pair[job_pairs];
    int64_t data[3], scales[3];
    float scale[3];
    int32_t formats;
};

static_assert(sizeof(Job) == 80, "kernels/experts/gpu.py and launch.py count with it");

STRATA_INLINE float factor_of(int64_t bits) { return float_of_bits(static_cast<uint32_t>(bits)); }

STRATA_INLINE Job job_of(const ExpertEntry& e, int32_t expert, int32_t count, int32_t first, int32_t second) {
    return {expert, count, {first, second}, {e.data[0], e.data[1], e.data[2]}, {e.scales[0], e.scales[1], e.scales[2]},
            {factor_of(e.scale_bits[0]), factor_of(e.scale_bits[1]), factor_of(e.scale_bits[2])}, static_cast<int32_t>(e.formats & 0xffffff)};
}

// What the grouping writes: the number of jobs, then the jobs.
struct Jobs {
    int32_t count, unused[3];
    Job job[1];
};

}  // namespace strata::STRATA_ISA
