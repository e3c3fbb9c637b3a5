// Pairs (row, rank) that chose the same expert, brought together.
#pragma once

#include "expert_table.h"
#include "small.h"

namespace strata::STRATA_ISA {

// The jobs of `n` pairs: expert[p] is the pair's, -1 where another tier computes it. Pairs of a job are in order, and
// so are jobs, by their first pair. One block, all of whose threads see `expert`; `leaders`, a word for 32 pairs, is
// scratch.
STRATA_INLINE void write_jobs(const int32_t* expert, uint32_t* leaders, int n, const ExpertEntry* table, Jobs* jobs) {
    static_assert(job_pairs == 2, "a job is a pair and the next one of its expert");
    int job = 0;
    for (int base = 0; base < n; base += block_size()) {
        const int p = base + thread_x(), mine = p < n ? expert[p] : -1;
        int before = 0, next = n;  // of this expert: pairs before this one, the first one after it
        UNROLL_BY(8)
        for (int other = 0; other < n; ++other) {
            const bool same = expert[other] == mine;
            before += same && other < p;
            next = same && other > p ? least(next, other) : next;
        }
        const bool leads = mine >= 0 && before % job_pairs == 0;
        const uint32_t all = ballot(leads);
        if (lane() == 0 && p < n) leaders[p / 32] = all;
        barrier();
        job = 0;
        for (int word = 0; word < least(p, n + 31) / 32; ++word) job += count_bits(leaders[word]);
        job += count_bits(all & ((1u << lane()) - 1));
        if (leads) jobs->job[job] = job_of(table[mine], mine, next < n ? 2 : 1, p, next < n ? next : p);
        job += leads;
    }
    if (thread_x() == block_size() - 1) jobs->count = job;  // the last leader of all is this thread's, or before it
}

}  // namespace strata::STRATA_ISA
