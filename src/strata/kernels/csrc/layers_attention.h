// Attention over a paged cache, dense or over lists of positions, and the choice of blocks; attention/naive.py and
// sparse_attention/naive.py state every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "pool.h"

namespace strata {

// Entry p of slot s starts at data + (table[s * pages_per_slot + p / page] * page + p % page) * width.
struct Plane {
    const float* data;
    const int32_t* table;
    int64_t page, pages_per_slot, width;
};

struct AttentionCall {
    const float* q;           // [rows, heads, dim]
    float* out;               // [rows, heads, dim]
    Plane keys, values;       // width = kv_heads * dim
    const int32_t* slot;      // [rows]
    const int32_t* position;  // [rows]
    const int32_t* listed;    // [rows, list_width] positions, or null: 0 .. position
    const int32_t* count;     // [rows] with `listed`
    int64_t list_width;
    int64_t rows, heads, kv_heads, dim;
    float scale;
};

struct SelectCall {
    const float* q;           // [rows, heads, dim]
    Plane keys;               // width = dim; entry j is block j's key
    const int32_t* slot;      // [rows]
    const int32_t* position;  // [rows]
    int64_t rows, heads, dim, ratio, budget;
    int32_t* positions;       // [rows, (budget + 1) * ratio]
    int32_t* count;           // [rows]
};

// Scratch of `attend` for rows that see at most `longest` entries: per worker when blocks of rows are shared out whole,
// for all rows at once when they are too few for that (`split`).
struct AttentionPlan {
    int64_t rows_per_block;  // rows of one slot that pass over the cache together
    int64_t stride;          // score places per row and head: `longest` rounded up to 16
    bool split;
};

// Floats of one block's scratch with the scores of `heads_held` heads: offsets, scores, totals.
static inline constexpr int64_t area_floats(const AttentionPlan& plan, int64_t heads_held) {
    return (4 + plan.rows_per_block * heads_held) * plan.stride + (plan.rows_per_block * heads_held + 15) / 16 * 16;
}

// Floats before the areas: where each block of rows starts.
static inline constexpr int64_t starts_floats(int64_t rows) { return (rows + 16) / 16 * 16; }

constexpr int64_t kSelectCounts = 2048;  // counters of the ranking, per row

struct AttentionKernels {
    // scratch: starts_floats(rows), then one area per worker (heads of one KV head held) or, split, one per block (all).
    void (*attend)(Pool&, const AttentionCall&, const AttentionPlan&, float* scratch);
    // rows > 0; scratch: rows * (stride + kSelectCounts) floats, stride >= the most blocks a row sees, a multiple of 16.
    void (*select)(Pool&, const SelectCall&, int64_t stride, float* scratch);
};
STRATA_VARIANTS(AttentionKernels, attention_kernels)

}  // namespace strata
