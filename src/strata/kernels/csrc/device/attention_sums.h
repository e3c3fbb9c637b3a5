// Attention of a few rows, second of three kernels: softmax and sums of values of each block of 256 positions
// (attention/naive.py, steps 2 to 4).
#pragma once

#include "attention_block.h"

namespace strata::STRATA_ISA {

// Where results of (row, head, block) lie: tops, totals [rows, heads, blocks], sums [.., dim].
struct Partials {
    float* tops;
    float* totals;
    float* sums;
    int64_t heads, blocks;
};

STRATA_INLINE int64_t partial_of(const Partials& to, const Shape& shape, const Unit& unit, int query, int block) {
    const int64_t row = unit.rows.first + query / shape.heads, head = unit.first_head + query % shape.heads;
    return (row * to.heads + head) * to.blocks + block;
}

// One block of positions, dims c0 .. c0 + width - 1.
template <int Q>
STRATA_INLINE void one_block(const float* scores, const Entries& entries, const Shape& shape, const Unit& unit,
                             const Seen& seen, int first, int block, int c0, int width, const Partials& to, float* weights,
                             float* tile) {
    const int j0 = first + block * kBlock, longest = least(kBlock, most_seen(seen, unit.rows) - j0);
    const int common = least(kBlock, least_seen(seen, unit.rows) - j0);
    HeldValues held;
    fetch_values(entries, shape, j0, least(tile_rows(shape, width), longest), c0, width, held);
    for (int i = warp(); i < unit.queries; i += threads_of_block() / 32) {
        const int64_t at = partial_of(to, shape, unit, i, block);
        const int n = seen_here(seen, shape, unit, i, j0);
        float score[kBlock / 32];  // asked for at once
        UNROLL
        for (int k = 0; k < kBlock / 32; ++k) score[k] = lane() + 32 * k < n ? scores[at * kBlock + lane() + 32 * k] : 0.0f;
        UNROLL
        for (int k = 0; k < kBlock / 32; ++k)
            if (lane() + 32 * k < n) weights[i * kPitch + lane() + 32 * k] = score[k];
        float top, total;
        softmax(weights + i * kPitch, n, top, total);
        if (lane() == 0 && c0 == 0) {
            to.tops[at] = top;
            to.totals[at] = total;
        }
    }
    const Place place = place_of<Q>(width, shape.rows * shape.heads);
    int here[Q];
    for (int q = 0; q < Q; ++q) here[q] = seen_here(seen, shape, unit, place.query + q, j0);
    const Sums<Q> sums =
        sum_block<Q>(entries, shape, place, j0, c0, width, longest, common, here, weights, tile, held);
    for (int q = 0; q < Q; ++q) {
        if (!place.on || place.query + q >= unit.queries) continue;
        float* out = to.sums + partial_of(to, shape, unit, place.query + q, block) * shape.dim + c0 + place.c;
        *reinterpret_cast<Vec4*>(out) = {sums.v[q][0], sums.v[q][1], sums.v[q][2], sums.v[q][3]};
    }
}

template <int Q>
STRATA_INLINE void all_blocks(const float* scores, const Entries& entries, const Shape& shape, const Unit& unit,
                              const Seen& seen, int first, int c0, int width, const Partials& to, float* memory) {
    const int count = (most_seen(seen, unit.rows) - first + kBlock - 1) / kBlock;
    float* weights = memory + kTileFloats;
    for (int block = block_x(); block < least(count, static_cast<int>(to.blocks)); block += grid_x()) {
        barrier();  // the block before is used up
        one_block<Q>(scores, entries, shape, unit, seen, first, block, c0, width, to, weights, memory);
    }
}

// scores [rows, heads, blocks * 256] -> partial results of entries from `first_entry` on.
// Grid: x blocks of positions (they loop), y units of heads and slices of `width` dims, z tiles of rows.
ATTENTION_KERNEL(attention_sums,
                 (const float* scores, const void* values, const float* value_scales, const int32_t* table,
                  const int32_t* segments, const int32_t* slot, const int32_t* position, const int32_t* listed,
                  const int32_t* count, float* tops, float* totals, float* sums, int64_t rows, int64_t num_segments,
                  int64_t heads, int64_t kv_heads, int64_t pages_per_slot, int64_t list_width, int64_t first_entry,
                  int64_t blocks, int64_t slice, int64_t queries, int64_t dim, int64_t unit_heads, int64_t unit_rows,
                  int64_t VALUES_PAGE, int64_t VALUES_TYPE)) {
    in_turn();
    DYNAMIC_SHARED(float, memory);
    ATTENTION_SHAPE(shape, VALUES);
#if defined(ATTENTION_SLICE)
    constexpr int width = ATTENTION_SLICE, at_once = ATTENTION_QUERIES;
#else
    const int width = static_cast<int>(slice), at_once = static_cast<int>(queries);
#endif
    const int slices = shape.dim / width;
    const Unit unit = unit_of(segments, static_cast<int>(num_segments), shape, static_cast<int>(rows),
                              block_y() / slices, block_z());
    if (unit.queries == 0) return;
    const int c0 = block_y() % slices * width, first = static_cast<int>(first_entry);
    const int32_t* list = listed ? listed + unit.rows.first * list_width : nullptr;
    const int64_t kv_head = unit.first_head / (heads / kv_heads);
    const Entries entries = {values, value_scales, table + slot[unit.rows.first] * pages_per_slot, list, kv_heads, kv_head};
    const Partials to = {tops, totals, sums, heads, blocks};
    const Seen seen = {position, count};
    if (at_once == 8) all_blocks<8>(scores, entries, shape, unit, seen, first, c0, width, to, memory);
    else if (at_once == 4) all_blocks<4>(scores, entries, shape, unit, seen, first, c0, width, to, memory);
    else if (at_once == 2) all_blocks<2>(scores, entries, shape, unit, seen, first, c0, width, to, memory);
    else all_blocks<1>(scores, entries, shape, unit, seen, first, c0, width, to, memory);
}

}  // namespace strata::STRATA_ISA
