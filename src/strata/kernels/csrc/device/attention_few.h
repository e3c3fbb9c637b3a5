// Attention of a few rows, in one launch (attention/naive.py): thread blocks do blocks of 256 positions for some
// queries of a unit each, and the last of a unit to arrive joins them in order.
//
// How many queries a thread block does follows from how many positions there are: few, so that all processors have
// work, or many, so that a key serves them all. No choice shows in a result. Scores are made as the lane rule has them:
// lane l of a group holds the values l, l + 32, .. of queries and keys. What was in the cache before the step is asked
// for before the kernel's turn.
#pragma once

#include "attention_few_tiles.h"

namespace strata::STRATA_ISA {

STRATA_INLINE void load_scales(const Entries& entries, const Shape& shape, int j0, int count, float* to) {
    if (shape.type != kKvByte) return;
    const int each = shape.dim / 32;
    for (int i = thread_x(); i < count * each; i += kFewThreads)
        to[i] = entries.scales[first_value(entries, shape, j0 + i / each) / 32 + i % each];
}

// This lane's values of queries `query` .. query + Q - 1; those that there are not are 0.
template <int Q>
struct Queries {
    float v[Q][kDimParts];
};

template <int Q>
STRATA_INLINE Queries<Q> load_part(const float* q, const Few& work, const Shape& shape, int num_heads, int query) {
    Queries<Q> own;
    UNROLL
    for (int k = 0; k < Q; ++k)
        UNROLL
        for (int i = 0; i < kDimParts; ++i) {
            const int c = lane() + 32 * i;
            const bool is = query + k < work.unit.queries && c < shape.dim;
            own.v[k][i] = is ? q[query_at(work.unit, shape, num_heads, query + k) * shape.dim + c] : 0.0f;
        }
    return own;
}

// Scores of a tile's `count` keys, `keys` of them at once by a group of lanes.
template <int Q>
STRATA_INLINE void score_keys(const Queries<Q>& own, const uint8_t* tile, const float* scales, const Shape& shape, int count,
                              float scale, float* weights) {
    constexpr int keys = Q == 8 ? 4 : 8, all = keys * Q, share = 32 / all;
    KEEP_ROLLED
    for (int j = warp() * keys; j < count; j += kFewThreads / 32 * keys) {
        float dots[all] = {};
        UNROLL
        for (int i = 0; i < kDimParts; ++i) {
            const int c = lane() + 32 * i;
            if (c >= shape.dim) continue;
            float key[keys];
            UNROLL
            for (int k = 0; k < keys; ++k) key[k] = tile_value(tile, scales, shape, least(j + k, count - 1) * shape.dim + c);
            UNROLL
            for (int k = 0; k < all; ++k) dots[k] = fma(own.v[k % Q][i], key[k / Q], dots[k]);
        }
        const float dot = fold<all, 16>(dots);
        const int mine = lane() / share;
        if (lane() % share == 0 && j + mine / Q < count) weights[mine % Q * kPitch + j + mine / Q] = dot * scale;
    }
}

// Sums of a tile's `count` value rows for dim c of T queries, of which all see `common` entries of the tile and query q
// the first seen[q].
template <int T>
STRATA_INLINE void add_rows(const uint8_t* tile, const float* scales, const Shape& shape, int c, int count, int common,
                            const int (&seen)[T], const float* weights, float (&sums)[T]) {
    const int whole = most(0, least(count, common));
    int j = 0;
    KEEP_ROLLED
    for (; j + 8 <= whole; j += 8) {
        float value[8];
        UNROLL
        for (int i = 0; i < 8; ++i) value[i] = tile_value(tile, scales, shape, (j + i) * shape.dim + c);
        UNROLL
        for (int q = 0; q < T; ++q)
            UNROLL
            for (int half = 0; half < 8; half += 4) {
                const Vec4 weight = *reinterpret_cast<const Vec4*>(weights + q * kPitch + j + half);
                UNROLL
                for (int i = 0; i < 4; ++i) sums[q] = fma(weight.v[i], value[half + i], sums[q]);
            }
    }
    KEEP_ROLLED
    for (; j < count; ++j) {
        const float value = tile_value(tile, scales, shape, j * shape.dim + c);
        UNROLL
        for (int q = 0; q < T; ++q)
            if (j < seen[q]) sums[q] = fma(weights[q * kPitch + j], value, sums[q]);
    }
}

// One block of positions for queries `query` .. query + Q - 1 of the unit; its first tiles are asked for. A thread sums
// one dim of T queries.
template <int Q, int T>
STRATA_INLINE void attend_block(const float* q, const Few& work, const Finish& to, int num_heads, int query, int block,
                                int blocks, float scale, int turn) {
    const Shape shape = work.key_shape();
    const int j0 = block * kBlock, count = least(kBlock, work.most - j0), of_keys = tiles_of(shape, count);
    const Queries<Q> own = load_part<Q>(q, work, shape, num_heads, query);
    load_scales(work.keys, work.key_shape(), j0, count, work.key_scales);
    load_scales(work.values, work.value_shape(), j0, count, work.value_scales);
    if (work.key_shape().type == kKvByte || work.value_shape().type == kKvByte) barrier();
    KEEP_ROLLED
    for (int tile = 0; tile < of_keys; ++tile) {
        const Range range = range_of(work, count, tile);
        const uint8_t* const from = await_tile(work, turn + tile);
        const float* const scales = work.key_scales + range.first * (shape.dim / 32);
        score_keys<Q>(own, from, scales, shape, range.count, scale, work.weights + range.first);
        next_tile(work, j0, count, tile, turn + tile);
    }
    barrier();  // scores are written
    if (warp() < Q) {
        const int n = seen_here(work.seen, shape, work.unit, query + warp(), j0);
        float top = 0.0f, total = 0.0f;
        if (n > 0) softmax(work.weights + warp() * kPitch, n, top, total);
        if (n > 0 && lane() == 0) put_terms(to, query + warp(), block, warp(), top, total);
    }
    barrier();  // weights and terms are written
    const Dim dim = dim_of(shape, Q / T);
    int seen[T], common = kBlock;
    float sums[T] = {};
    UNROLL
    for (int k = 0; k < T; ++k) {
        seen[k] = seen_here(work.seen, shape, work.unit, query + dim.group * T + k, j0);
        if (query + dim.group * T + k < work.unit.queries) common = least(common, seen[k]);
    }
    KEEP_ROLLED
    for (int tile = of_keys; tile < all_tiles(work, count); ++tile) {
        const Range range = range_of(work, count, tile);
        const uint8_t* const from = await_tile(work, turn + tile);
        int left[T];
        UNROLL
        for (int k = 0; k < T; ++k) left[k] = seen[k] - range.first;
        if (dim.on)
            add_rows<T>(from, work.value_scales + range.first * (shape.dim / 32), work.value_shape(), dim.c, range.count,
                        common - range.first, left, work.weights + dim.group * T * kPitch + range.first, sums);
        next_tile(work, j0, count, tile, turn + tile);
    }
    if (blocks == 1) put_only<T>(to, work, shape, query, dim, sums);
    else if (put_sums<T>(to, shape, query, dim, block, blocks, seen, sums)) join_blocks<Q, T>(to, work, shape, query, dim, blocks);
}

// The same, by as many threads for a query as there are.
template <int Q, int T = Q>
STRATA_INLINE void attend_part(const float* q, const Few& work, const Finish& to, int num_heads, int query, int block, int blocks,
                               float scale, int turn) {
    if constexpr (T == 1) {
        attend_block<Q, T>(q, work, to, num_heads, query, block, blocks, scale, turn);
    } else {
        if (Q / T * 2 * dim_threads(work.key_shape()) > kFewThreads)
            attend_block<Q, T>(q, work, to, num_heads, query, block, blocks, scale, turn);
        else
            attend_part<Q, T / 2>(q, work, to, num_heads, query, block, blocks, scale, turn);
    }
}

// Queries of a part: as few as give all thread blocks work, if they are as many as that.
STRATA_INLINE int queries_of_part(int queries, int blocks, int thread_blocks) {
    int each = kFewQueries;
    KEEP_ROLLED
    while (each > 1 && (each / 2 >= queries || blocks * ((2 * queries + each - 1) / each) <= thread_blocks)) each /= 2;
    return each;
}

// Entries of the slot of a unit's rows that were there before the step.
STRATA_INLINE int entries_before(const int32_t* segments, int num_segments, const int32_t* position, int row) {
    for (int s = 0; s < num_segments; ++s) {
        const int first = segments[3 * s + 1];
        if (row >= first && row < first + segments[3 * s + 2]) return position[first];
    }
    return 0;
}

// q [rows, heads, dim] -> out [rows, heads, dim], also quantised where that is wanted, for units of rows from
// `first_tile` on. Grid: x as many thread blocks as a unit shall have, y parts of heads, z tiles of rows. `arrived` has
// kMostQueries words for each unit, which are 0 before and after.
ATTENTION_KERNEL(attention_few,
                 (const float* q, const void* keys, const float* key_scales, const int32_t* key_table, const void* values,
                  const float* value_scales, const int32_t* value_table, const int32_t* segments, const int32_t* slot,
                  const int32_t* position, const int32_t* listed, const int32_t* counts, float* tops, float* totals, float* sums,
                  int32_t* arrived, float* out, uint8_t* by32, uint8_t* by16, int64_t rows, int64_t num_segments, int64_t heads,
                  int64_t kv_heads, int64_t key_pages, int64_t value_pages, int64_t list_width, int64_t first_tile,
                  int64_t parts, int64_t most_blocks, float scale, int64_t dim, int64_t unit_heads, int64_t unit_rows,
                  int64_t KEYS_PAGE, int64_t KEYS_TYPE, int64_t VALUES_PAGE, int64_t VALUES_TYPE)) {
    start_next();
    DYNAMIC_SHARED(uint8_t, memory);
    ATTENTION_SHAPE(key_shape, KEYS);
    ATTENTION_SHAPE(value_shape, VALUES);
    float* const weights = reinterpret_cast<float*>(memory + kRingSlots * kRingBytes);
    float* const z = weights + kFewQueries * kPitch;
    int32_t* const last = reinterpret_cast<int32_t*>(z + kFewQueries);
    uint64_t* const arrivals = reinterpret_cast<uint64_t*>(last + 4);
    int32_t* const places = reinterpret_cast<int32_t*>(arrivals + kRingSlots + 1);
    float* const scales = reinterpret_cast<float*>(places + 2 * kBlock);
    if (thread_x() < kRingSlots) expect(arrivals + thread_x(), 32);
    barrier();
    if (counts) after_previous();  // lists are made in the step
    const int num_heads = static_cast<int>(heads), z_tile = static_cast<int>(first_tile) + block_z();
    const Unit unit = unit_of(segments, static_cast<int>(num_segments), key_shape, static_cast<int>(rows), block_y(), z_tile);
    const int64_t kv_head = unit.first_head / (heads / kv_heads), own = unit.queries > 0 ? slot[unit.rows.first] : 0;
    const int32_t* list = listed ? listed + unit.rows.first * list_width : nullptr;
    const Seen seen = {position, counts};
    const int entries = unit.queries > 0 ? most_seen(seen, unit.rows) : 0, blocks = (entries + kBlock - 1) / kBlock;
    const int each = queries_of_part(unit.queries, blocks, grid_x()), of_unit = (unit.queries + each - 1) / each;
    const Few work = {{keys, key_scales, key_table + own * key_pages, list, kv_heads, kv_head},
                      {values, value_scales, value_table + own * value_pages, list, kv_heads, kv_head},
#if !defined(ATTENTION_DIM)
                      key_shape, value_shape,
#endif
                      unit, seen, entries, memory, arrivals, places, places + kBlock, weights,
                      scales, scales + kBlock * (key_shape.dim / 32)};
    const int64_t number = static_cast<int64_t>(block_z()) * parts + block_y(), pitch = key_shape.rows * key_shape.heads;
    const Finish to = {tops, totals, sums, arrived + number * kMostQueries, out, {by32, by16, heads * key_shape.dim},
                       number * pitch, most_blocks, weights, z, last};
    int turn = 0, asked = 0, item = block_x();
    if (!counts) {
        if (item < blocks * of_unit) {
            find_places(work, item / of_unit * kBlock);
            const int before = entries_before(segments, static_cast<int>(num_segments), position, unit.rows.first);
            asked = ask_first(work, item / of_unit * kBlock, 0, before, turn);
        }
        after_previous();
    }
    KEEP_ROLLED
    for (; item < blocks * of_unit; item += grid_x()) {
        const int block = item / of_unit, query = item % of_unit * each, j0 = block * kBlock;
        if (counts || item != static_cast<int>(block_x())) find_places(work, j0);
        ask_first(work, j0, asked, entries, turn);
        asked = 0;
        if (each == 8) attend_part<8>(q, work, to, num_heads, query, block, blocks, scale, turn);
        else if (each == 4) attend_part<4>(q, work, to, num_heads, query, block, blocks, scale, turn);
        else if (each == 2) attend_part<2>(q, work, to, num_heads, query, block, blocks, scale, turn);
        else attend_part<1>(q, work, to, num_heads, query, block, blocks, scale, turn);
        turn += all_tiles(work, least(kBlock, entries - j0));
        barrier();  // the ring and the weights are used up
    }
    if (blocks > 0 || block_x() > 0) return;
    KEEP_ROLLED
    for (int i = thread_x(); i < unit.queries * key_shape.dim; i += kFewThreads)  // of no entries: NaN
        put_result(to, unit, key_shape, i / key_shape.dim, i % key_shape.dim, float_of_bits(0x7fc00000u));
}

}  // namespace strata::STRATA_ISA
