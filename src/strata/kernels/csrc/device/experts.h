// The routed experts around their products: which experts a step needs, and the weighted sum of what they give.
#pragma once

#include "grouping.h"

namespace strata::STRATA_ISA {

// ids [pairs], the expert of each pair. Experts of another tier get no job. One block; dynamic shared memory: 2 * pairs
// int32.
STRATA_KERNEL(group_pairs, (const int32_t* ids, int64_t pairs, const ExpertEntry* table, Jobs* jobs)) {
    start_next();
    after_previous();
    DYNAMIC_SHARED(int32_t, expert);
    const int n = static_cast<int>(pairs);
    for (int p = thread_x(); p < n; p += block_size()) expert[p] = tier_of(table[ids[p]]) == 0 ? ids[p] : -1;
    barrier();
    write_jobs(expert, expert + pairs, n, jobs);
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
