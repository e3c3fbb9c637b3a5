// Scores of QSA's blocks for the many rows of a prompt; bits as sparse_attention/naive.py. A group of 32 lanes does two
// keys for four rows and all index heads at once: lane l holds the values l, l + 32, .. of the queries, as the lane
// rule has them, so that a key that is read serves 16 dots. Constants of a compilation: SELECT_HEADS (1, 2 or 4),
// SELECT_DIM.
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

constexpr int select_rows = 4, select_threads = 256, select_each = SELECT_DIM / 32;
constexpr int select_dots = 2 * select_rows * SELECT_HEADS;  // value (k * rows + r) * heads + h
static_assert(SELECT_DIM % 32 == 0 && 32 % select_dots == 0, "a lane holds a sum or a part of one");

// Keys of one slot's cache.
struct SelectKeys {
    const float* data;
    const int32_t* pages;
    int64_t page;
};

STRATA_INLINE const float* select_key(const SelectKeys& keys, int64_t j) {
    return keys.data + (keys.pages[j / keys.page] * keys.page + j % keys.page) * SELECT_DIM;
}

// The sum over the heads, in order, of what is not below 0, for keys j and j + 1 of each row: every group of
// 32 / (2 rows) lanes has one of them, in its first lane.
STRATA_INLINE float select_pair(const float (&q)[select_rows][SELECT_HEADS][select_each], const SelectKeys& keys, int64_t j,
                                int64_t last) {
    float k[2][select_each], dots[select_dots] = {};
    UNROLL
    for (int x = 0; x < 2; ++x) {
        const float* key = select_key(keys, j + x < last ? j + x : last);
        UNROLL
        for (int i = 0; i < select_each; ++i) k[x][i] = key[lane() + 32 * i];
    }
    UNROLL
    for (int i = 0; i < select_each; ++i)
        UNROLL
        for (int v = 0; v < select_dots; ++v)
            dots[v] = fma(q[v / SELECT_HEADS % select_rows][v % SELECT_HEADS][i], k[v / (select_rows * SELECT_HEADS)][i], dots[v]);
    const float dot = fold<select_dots, 16>(dots), positive = dot < 0.0f ? 0.0f : dot;
    constexpr int wide = 32 / select_dots;  // lanes of a dot
    float total = 0.0f + positive;
    UNROLL
    for (int h = 1; h < SELECT_HEADS; ++h) total = total + shuffle(positive, (lane() + h * wide) & 31);
    return total;
}

// q [rows, heads, dim] -> scores [launch's rows, width] of the complete blocks of each row. Rows of another slot than
// the tile's first are done after it. Grid: x groups of blocks (they loop), y tiles of rows from `first_row` on.
STRATA_KERNEL_OF(select_threads, select_prompt,
                 (const float* q, const float* data, const int32_t* table, const int32_t* slot, const int32_t* position,
                  float* scores, int64_t first_row, int64_t rows, int64_t ratio, int64_t page, int64_t pages_per_slot,
                  int64_t width)) {
    const int64_t tile = static_cast<int64_t>(block_y()) * select_rows;
    const int here = static_cast<int>(rows - tile < select_rows ? rows - tile : select_rows);
    float mine[select_rows][SELECT_HEADS][select_each];
    int64_t counts[select_rows];
    UNROLL
    for (int r = 0; r < select_rows; ++r) {
        const int64_t row = first_row + tile + (r < here ? r : here - 1);
        counts[r] = r < here ? (position[row] + 1) / ratio : 0;
        UNROLL
        for (int i = 0; i < SELECT_HEADS * select_each; ++i)
            mine[r][i / select_each][i % select_each] =
                q[row * SELECT_HEADS * SELECT_DIM + i / select_each * SELECT_DIM + i % select_each * 32 + lane()];
    }
    constexpr int wide = 32 / (2 * select_rows);  // lanes of a total
    const int own = lane() / wide % select_rows, which = lane() / wide / select_rows;
    KEEP_ROLLED
    for (int first = 0; first < here; ++first) {
        const int32_t of = slot[first_row + tile + first];
        bool done = false;
        int64_t longest = 0, limit = 0;
        UNROLL
        for (int r = 0; r < select_rows; ++r) {
            if (r >= here || slot[first_row + tile + r] != of) continue;
            done = done || r < first;
            longest = counts[r] > longest ? counts[r] : longest;
            if (r == own) limit = counts[r];
        }
        if (done) continue;
        const SelectKeys keys = {data, table + of * pages_per_slot, page};
        const int64_t step = static_cast<int64_t>(grid_x()) * (select_threads / 16);
        for (int64_t j = 2 * (static_cast<int64_t>(block_x()) * (select_threads / 32) + warp()); j < longest; j += step) {
            const float total = select_pair(mine, keys, j, longest - 1);
            if (lane() % wide == 0 && j + which < limit) scores[(tile + own) * width + j + which] = total;
        }
    }
}

}  // namespace strata::STRATA_ISA
