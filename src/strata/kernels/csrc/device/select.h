// QSA's choice of blocks; bits as sparse_attention/naive.py.
#pragma once

#include "norm_rows.h"
#include "small.h"

namespace strata::STRATA_ISA {

constexpr int kSelectThreads = 256;

// q [rows, heads, dim], block keys in pages -> scores [rows, width] of the complete blocks. A group of 32 lanes does a
// block at a time. Grid: x groups of blocks (they loop), y rows from `first_row` on.
STRATA_KERNEL(select_scores, (const float* q, const float* keys, const int32_t* table, const int32_t* slot,
                              const int32_t* position, float* scores, int64_t first_row, int64_t heads, int64_t dim,
                              int64_t ratio, int64_t page, int64_t pages_per_slot, int64_t width)) {
    in_turn();
    DYNAMIC_SHARED(float, queries);  // [heads][dim]
    const int64_t row = first_row + block_y(), count = (position[row] + 1) / ratio;
    const int groups = block_size() / 32;
    if (static_cast<int64_t>(block_x()) * groups >= count) return;
    for (int64_t i = thread_x(); i < heads * dim; i += block_size()) queries[i] = q[row * heads * dim + i];
    barrier();
    const int32_t* pages = table + slot[row] * pages_per_slot;
    for (int64_t j = static_cast<int64_t>(block_x()) * groups + warp(); j < count; j += static_cast<int64_t>(grid_x()) * groups) {
        const float* key = keys + (pages[j / page] * page + j % page) * dim;
        float total = 0.0f;
        for (int64_t h = 0; h < heads; ++h) {
            const float dot = lane_dot(queries + h * dim, key, dim);
            total = total + (dot < 0.0f ? 0.0f : dot);
        }
        if (lane() == 0) scores[block_y() * width + j] = total;
    }
}

// A score's place in the ranking: scores are +0 or above, so their bits order them; NaN is above all.
STRATA_INLINE uint32_t rank_of(float score) { return score != score ? 0xffffffffu : bits_of_float(score); }

// What the block knows of the border between kept and left out.
struct Border {
    uint32_t rank;
    int surplus;  // blocks of this very rank that do not fit: the first ones are left out
};

// Of 256 counts, the digit at which `above` and the counts from the highest digit down reach `keep`: found = {digit,
// how many are above it, its count}. Each lane looks at eight digits.
STRATA_INLINE void find_digit(const int32_t* digits, int above, int keep, int32_t* found) {
    constexpr int each = 8;
    const int highest = 255 - each * lane();
    int32_t count[each], own = 0;
    UNROLL
    for (int k = 0; k < each; ++k) own += count[k] = digits[highest - k];
    int before = own;  // of the lanes up to this one
    for (int step = 1; step < 32; step *= 2) {
        const int32_t other = shuffle(before, most(lane() - step, 0));
        if (lane() >= step) before += other;
    }
    int run = above + before - own;
    if (run >= keep || run + own < keep) return;
    int k = 0;
    while (run + count[k] < keep) run += count[k++];
    found[0] = highest - k;
    found[1] = run;
    found[2] = count[k];
}

// The rank of the `keep`-th best of `count` scores, 1 <= keep <= count, digit by digit.
STRATA_INLINE Border border_of(const float* scores, int count, int keep, int32_t* digits, int32_t* found) {
    uint32_t prefix = 0, mask = 0;
    int above = 0, equal = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        digits[thread_x()] = 0;
        barrier();
        for (int j = thread_x(); j < count; j += kSelectThreads) {
            const uint32_t rank = rank_of(scores[j]);
            if ((rank & mask) == prefix) atomic_add(digits + (rank >> shift & 255), 1);
        }
        barrier();
        if (warp() == 0) find_digit(digits, above, keep, found);
        barrier();
        prefix |= static_cast<uint32_t>(found[0]) << shift;
        mask |= 255u << shift;
        above = found[1];
        equal = found[2];
        barrier();  // `found` is read
    }
    return {prefix, above + equal - keep};
}

// Threads before this one with `is`, and of the whole block; `sums` holds a count for each group of lanes.
STRATA_INLINE int place_among(bool is, int32_t* sums, int& all) {
    const uint32_t bits = ballot(is);
    if (lane() == 0) sums[warp()] = count_bits(bits);
    barrier();
    int before = count_bits(bits & ((1u << lane()) - 1));
    all = 0;
    for (int w = 0; w < kSelectThreads / 32; ++w) {
        if (w < warp()) before += sums[w];
        all += sums[w];
    }
    barrier();  // `sums` is read
    return before;
}

// scores [rows, width] -> positions [rows, (budget + 1) * ratio], count [rows]. Grid: x rows from `first_row` on.
STRATA_KERNEL_OF(kSelectThreads, select_choose,
                 (const float* scores, const int32_t* position, int32_t* positions, int32_t* counts, int64_t first_row,
                  int64_t ratio, int64_t budget, int64_t width)) {
    in_turn();
    SHARED(int32_t, digits, 256);
    SHARED(int32_t, found, 3);
    SHARED(int32_t, sums, kSelectThreads / 32);
    const int64_t row = first_row + block_x(), room = (budget + 1) * ratio;
    const float* from = scores + block_x() * width;
    const int seen = position[row] + 1, count = static_cast<int>(seen / ratio);
    const int keep = budget < count ? static_cast<int>(budget) : count;
    Border border = {0, 0};
    if (0 < keep && keep < count) border = border_of(from, count, keep, digits, found);
    int32_t* to = positions + row * room;
    int equal_before = 0, kept_before = 0;
    for (int j0 = 0; j0 < count && keep > 0; j0 += kSelectThreads) {
        const int j = j0 + thread_x();
        const uint32_t rank = j < count ? rank_of(from[j]) : 0;
        int all = 0;
        const bool equal = j < count && rank == border.rank;
        const int among = equal_before + place_among(equal, sums, all);
        equal_before += all;
        const bool kept = j < count && (rank > border.rank || (equal && among >= border.surplus));
        const int place = kept_before + place_among(kept, sums, all);
        kept_before += all;
        for (int64_t i = 0; kept && i < ratio; ++i) to[place * ratio + i] = static_cast<int32_t>(j * ratio + i);
    }
    const int64_t listed = keep * ratio, tail = count * ratio, used = listed + seen - tail;
    for (int64_t i = listed + thread_x(); i < room; i += kSelectThreads)
        to[i] = i < used ? static_cast<int32_t>(tail + i - listed) : -1;
    if (thread_x() == 0) counts[row] = static_cast<int32_t>(used);
}

}  // namespace strata::STRATA_ISA
