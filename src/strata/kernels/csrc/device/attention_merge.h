// Attention of a few rows, last of three kernels: the blocks of positions joined in increasing order
// (attention/naive.py, steps 5 to 7).
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

// Running maximum, sum and weighted sum of one value dim.
struct Running {
    float top, total, sum;
};

// Joins up to 32 blocks. The running maxima come first, all at once: of maxima any order gives the same one.
STRATA_INLINE void join(Running& so_far, bool start, const float* tops, const float* totals, const float* sums, int dim,
                        int count) {
    float top = lane() < count ? tops[lane()] : -infinity();
    const float own = top;
    if (start) so_far.top = shuffle(top, 0);
    top = own > so_far.top ? own : so_far.top;
    for (int step = 1; step < 32; step *= 2) {
        const float before = shuffle(top, lane() >= step ? lane() - step : lane());
        top = before > top ? before : top;
    }
    const float below = shuffle(top, lane() > 0 ? lane() - 1 : 0), before = lane() > 0 ? below : so_far.top;
    const float keep = shared_exp(before - top), with = shared_exp(own - top);
    const float total = lane() < count ? totals[lane()] : 0.0f;
    for (int b = 0; b < count; ++b) {
        const float p = shuffle(keep, b), r = shuffle(with, b), z = shuffle(total, b), a = sums ? sums[b * dim] : 0.0f;
        const bool first = start && b == 0;
        so_far.total = first ? z : fma(z, r, so_far.total * p);
        so_far.sum = first ? a : fma(a, r, so_far.sum * p);
    }
    so_far.top = shuffle(top, 31);
}

// tops, totals [rows * heads, blocks], sums [.., dim] of entries from `first_entry` on -> out [rows * heads, dim].
// Running maxima and sums are kept in `state` [rows * heads, 2] and `out` from one call to the next of the same rows;
// the last one divides. Grid: x = rows * heads; a group of 32 lanes does 32 dims.
STRATA_KERNEL(attention_merge, (const float* tops, const float* totals, const float* sums, const int32_t* position,
                                const int32_t* count, float* state, float* out, int64_t heads, int64_t dim,
                                int64_t first_entry, int64_t blocks, int64_t last)) {
    in_turn();
    const int64_t query = block_x(), row = query / heads;
    const int c = thread_x();
    const bool on = c < dim;
    const int64_t seen = count ? count[row] : position[row] + 1;
    const int64_t left = (seen - first_entry + 255) / 256;
    const int here = static_cast<int>(left < 0 ? 0 : left < blocks ? left : blocks);
    Running so_far = {0.0f, 0.0f, 0.0f};
    if (first_entry > 0) so_far = {state[2 * query], state[2 * query + 1], on ? out[query * dim + c] : 0.0f};
    barrier();  // the state is read by all before it changes
    for (int b = 0; b < here; b += 32) {
        const int64_t at = query * blocks + b;
        join(so_far, first_entry == 0 && b == 0, tops + at, totals + at, on ? sums + at * dim + c : nullptr,
             static_cast<int>(dim), here - b < 32 ? here - b : 32);
    }
    if (!last && thread_x() == 0) {
        state[2 * query] = so_far.top;
        state[2 * query + 1] = so_far.total;
    }
    if (!on) return;
    if (last) so_far.sum = seen > 0 ? so_far.sum / so_far.total : float_of_bits(0x7fc00000u);
    out[query * dim + c] = so_far.sum;
}

}  // namespace strata::STRATA_ISA
