// Attention of a few rows, first of three kernels: scores of all entries (attention/naive.py, step 1).
//
// Scores, sums of values and their merge are kernels of their own here, so that one row over 4,096 entries gives every
// processor keys and values to read, each of them once: entries are cut finely for the scores, dims for the sums.
#pragma once

#include "attention_block.h"
#include "attention_dots.h"

namespace strata::STRATA_ISA {

// q [rows, heads, dim] -> scores [rows, heads, width], of entries from `first_entry` on, `width` at most.
// Grid: x tiles of keys (as many as are wanted; they loop), y units of heads, z tiles of rows.
ATTENTION_KERNEL(attention_scores,
                 (const float* q, const void* keys, const float* key_scales, const int32_t* table,
                  const int32_t* segments, const int32_t* slot, const int32_t* position, const int32_t* listed,
                  const int32_t* count, float* scores, int64_t rows, int64_t num_segments, int64_t heads,
                  int64_t kv_heads, int64_t pages_per_slot, int64_t list_width, int64_t first_entry, int64_t width,
                  float scale, int64_t dim, int64_t unit_heads, int64_t unit_rows, int64_t KEYS_PAGE,
                  int64_t KEYS_TYPE)) {
    in_turn();
    DYNAMIC_SHARED(float, memory);
    ATTENTION_SHAPE(shape, KEYS);
    const int num_heads = static_cast<int>(heads), pitch = shape.rows * shape.heads, num_keys = keys_of_tile(shape.dim);
    const Unit unit = unit_of(segments, static_cast<int>(num_segments), shape, static_cast<int>(rows), block_y(), block_z());
    if (unit.queries == 0) return;
    const int first = static_cast<int>(first_entry);
    const int seen = least(most_seen({position, count}, unit.rows) - first, static_cast<int>(width));
    if (block_x() * num_keys >= seen) return;
    const int32_t* list = listed ? listed + unit.rows.first * list_width : nullptr;
    const int64_t kv_head = unit.first_head / (heads / kv_heads);
    const Entries entries = {keys, key_scales, table + slot[unit.rows.first] * pages_per_slot, list, kv_heads, kv_head};
    float* tile = memory;
    float* queries = tile + num_keys * shape.dim;
    // Of the tile's keys: found once, since that is two reads one after the other.
    int64_t* places = reinterpret_cast<int64_t*>(queries + pitch * shape.dim);
    bool loaded = false;
    for (int j = block_x() * num_keys; j < seen; j += grid_x() * num_keys) {
        const int n = least(num_keys, seen - j);
        barrier();  // the tile before is used up
        for (int key = thread_x(); key < n; key += threads_of_block()) places[key] = first_value(entries, shape, first + j + key);
        if (!loaded) load_queries(q, unit, shape, num_heads, queries);
        loaded = true;
        barrier();
        load_keys_from<8>(entries, shape, n, num_keys, tile, [&](int key) { return places[key]; });
        barrier();
        score_tile({tile, queries, num_keys, pitch, chunk_values(shape)}, shape.dim, scale, [&](int query, int key) {
            const int64_t row = unit.rows.first + query / shape.heads, head = unit.first_head + query % shape.heads;
            return query < unit.queries ? scores + (row * heads + head) * width + j + key : nullptr;
        });
    }
}

}  // namespace strata::STRATA_ISA
