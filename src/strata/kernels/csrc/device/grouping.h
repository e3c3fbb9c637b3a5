// Pairs (row, rank) that chose the same expert, brought together.
#pragma once

#include "expert_table.h"

namespace strata::STRATA_ISA {

// The jobs of `n` pairs: expert[p] is the pair's, -1 where another tier computes it. Pairs of a job are in order, and so
// are jobs, by their first pair. One block, all of whose threads see `expert`; `rank`, of n places, is scratch.
STRATA_INLINE void write_jobs(const int32_t* expert, int32_t* rank, int n, Jobs* jobs) {
    for (int p = thread_x(); p < n; p += block_size()) {
        int before = 0;  // pairs of this expert
        for (int other = 0; other < p; ++other) before += expert[other] == expert[p];
        rank[p] = expert[p] < 0 ? -1 : before;
    }
    barrier();
    for (int p = thread_x(); p < n; p += block_size()) {
        if (rank[p] < 0 || rank[p] % job_pairs != 0) continue;
        int job = 0, count = 0;
        for (int other = 0; other < p; ++other) job += rank[other] >= 0 && rank[other] % job_pairs == 0;
        for (int other = p; other < n && count < job_pairs; ++other)
            if (expert[other] == expert[p]) jobs->job[job].pair[count++] = other;
        jobs->job[job].expert = expert[p];
        jobs->job[job].count = count;
    }
    if (thread_x() == 0) {
        int count = 0;
        for (int p = 0; p < n; ++p) count += rank[p] >= 0 && rank[p] % job_pairs == 0;
        jobs->count = count;
    }
}

}  // namespace strata::STRATA_ISA
