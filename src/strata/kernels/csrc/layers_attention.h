// Attention over a paged cache, dense or over lists of positions; attention/naive.py states every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "layers_plane.h"
#include "pool.h"

namespace strata {

constexpr int64_t kBlock = 256;  // positions that share one maximum: attention/naive.py's BLOCK, part of the bits

struct AttentionCall {
    const float* q;           // [rows, heads, dim]
    float* out;               // [rows, heads, dim]
    Plane keys, values;
    const int32_t* slot;      // [rows]
    const int32_t* position;  // [rows]
    const int32_t* listed;    // [rows, list_width] positions, or null: 0 .. position
    const int32_t* count;     // [rows] with `listed`
    int64_t list_width;
    int64_t rows, heads, kv_heads, dim;
    float scale;

    __attribute__((always_inline)) int64_t group() const { return heads / kv_heads; }
    __attribute__((always_inline)) int64_t seen(int64_t row) const {
        return listed ? count[row] : static_cast<int64_t>(position[row]) + 1;
    }
};

// How a call is shared out. A unit is a bundle of rows of one slot with one KV head: their query heads pass over the
// cache together. Units run whole, one block of positions after the other, or, where they are too few for the threads,
// their blocks run apart, `blocks_at_once` of each unit, and are merged in order afterwards. The bits are the same.
struct AttentionPlan {
    int64_t rows_per_bundle, bundles;
    int64_t blocks;          // that the longest row sees
    int64_t blocks_at_once;  // 0: units run whole
};

static constexpr int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }
constexpr int64_t kValueTile = 32;  // entries whose values stay in the first cache while all queries use them

// Floats of one block's result: a maximum, a sum and `dim` weighted sums for every query.
static constexpr int64_t partial_floats(int64_t queries, int64_t dim) {
    return 2 * padded(queries) + padded(queries * dim);
}
// Floats that a worker needs: places, queries, a tile of converted entries, scores.
static constexpr int64_t worker_floats(int64_t queries, int64_t dim) {
    return 4 * kBlock + 4 * padded(queries) + padded(kValueTile * dim) + queries * kBlock;
}

// Floats of the whole scratch: bundle starts; per unit the running maximum and sum; partials; workers.
static inline int64_t attention_floats(const AttentionCall& call, const AttentionPlan& plan, int64_t threads) {
    const int64_t queries = plan.rows_per_bundle * call.group(), units = plan.bundles * call.kv_heads;
    const int64_t partials = plan.blocks_at_once ? units * plan.blocks_at_once : threads;
    return padded(plan.bundles + 1) + units * 2 * padded(queries) + partials * partial_floats(queries, call.dim) +
           threads * worker_floats(queries, call.dim);
}

struct AttentionKernels {
    void (*attend)(Pool&, const AttentionCall&, const AttentionPlan&, float* scratch);  // scratch: attention_floats
};
STRATA_VARIANTS(AttentionKernels, attention_kernels)

}  // namespace strata
