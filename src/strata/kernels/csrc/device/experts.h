// The routed experts around their products: which experts a step needs, and the weighted sum of what they give.
#pragma once

#include "expert_table.h"

namespace strata::STRATA_ISA {

// ids [pairs], the expert of each pair. Experts of another tier get no job. Pairs of a job are in order, and so are jobs,
// by their first pair. One block.
STRATA_KERNEL(group_pairs, (const int32_t* ids, int64_t pairs, const ExpertEntry* table, Jobs* jobs)) {
    start_next();
    after_previous();
    DYNAMIC_SHARED(int32_t, shared);
    int32_t* const expert = shared;       // [pairs], -1 for another tier
    int32_t* const rank = shared + pairs;  // [pairs] of the pair among its expert's
    const int n = static_cast<int>(pairs);
    for (int p = thread_x(); p < n; p += block_size()) expert[p] = tier_of(table[ids[p]]) == 0 ? ids[p] : -1;
    barrier();
    for (int p = thread_x(); p < n; p += block_size()) {
        int before = 0;
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

// y [rows, hidden] = sum over the ranks, in order, of weights [rows, top_k] times results [rows, top_k, hidden].
STRATA_KERNEL(combine, (const float* results, const float* weights, float* y, int64_t rows, int64_t top_k,
                        int64_t hidden)) {
    start_next();
    after_previous();
    const int64_t at = element();
    if (at >= rows * hidden) return;
    const int64_t row = at / hidden, column = at % hidden;
    const float* from = results + row * top_k * hidden + column;
    float sum = 0.0f;
    for (int64_t k = 0; k < top_k; ++k) sum = fma(weights[row * top_k + k], from[k * hidden], sum);
    y[at] = sum;
}

}  // namespace strata::STRATA_ISA
