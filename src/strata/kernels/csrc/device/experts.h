// The routed experts around their products: which experts a step needs, and the weighted sum of what they give.
#pragma once

#include "grouping.h"
#include "quantised_rows.h"

namespace strata::STRATA_ISA {

// ids [pairs], the expert of each pair. Experts of another tier get no job. One block does that; dynamic shared memory:
// 2 * pairs int32. More blocks quantise x [rows, cols] beside it, four values a thread, into the layouts that are
// wanted.
STRATA_KERNEL(group_pairs, (const int32_t* ids, int64_t pairs, const ExpertEntry* table, Jobs* jobs, const float* x,
                            uint8_t* by32, uint8_t* by16, int64_t rows, int64_t cols)) {
    in_turn();
    if (block_x() > 0) return quantise_part(x, by32, by16, rows, cols, element() - block_size());
    DYNAMIC_SHARED(int32_t, expert);
    const int n = static_cast<int>(pairs);
    for (int p = thread_x(); p < n; p += block_size()) {
        const ExpertEntry* const entry = table + ids[p];
        for (int i = 0; i < 64; i += 32) touch(reinterpret_cast<const uint8_t*>(entry) + i);  // the jobs want all of it
        expert[p] = tier_of(*entry) == 0 ? ids[p] : -1;
    }
    barrier();
    write_jobs(expert, reinterpret_cast<uint32_t*>(expert + n), n, table, jobs);
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
    UNROLL_BY(8)
    for (int64_t k = 0; k < top_k; ++k) sum = fma(weights[row * top_k + k], from[k * hidden], sum);
    y[at] = sum;
}

}  // namespace strata::STRATA_ISA
