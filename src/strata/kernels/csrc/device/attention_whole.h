// Attention of many rows: a thread block goes through all positions of its rows, block by block, and merges as it goes
// (attention/naive.py). Keys and values are read once for a tile of rows and the query heads of a KV head.
#pragma once

#include "attention_block.h"
#include "attention_dots.h"
#include "attention_split.h"

namespace strata::STRATA_ISA {

// What a thread block works on.
struct Whole {
    Entries keys, values;
    Seen seen;
    Unit unit;
    int heads;
    float* tile;     // of keys, then of values
    float* queries;  // [dim][queries]
    float* weights;  // [queries][kPitch]
    float* states;   // [queries][4]: M, Z, and how a block joins: p, r
    int32_t* places;  // [2][kBlock]: of a block's keys and values among all entries
};

// Of a tile of keys or values.
STRATA_INLINE int tile_floats(const Shape& shape) {
    const int squares = most(kTileFloats, 32 * shape.dim);
    return splits(shape) ? most(squares, keys_of_tile(shape.dim) * kSplitKey) : squares;
}

// Looks up where a block's entries lie, once for all that read them; a barrier follows.
STRATA_INLINE void find_places(const Whole& work, const Shape& key_shape, const Shape& shape, int j0, int longest) {
    for (int j = thread_x(); j < longest; j += threads_of_block()) {
        work.places[j] = static_cast<int32_t>(place_of_entry(work.keys, key_shape, j0 + j));
        work.places[kBlock + j] = static_cast<int32_t>(place_of_entry(work.values, shape, j0 + j));
    }
}

// Scores of the block from j0 on: squares of keys and queries, a thread each.
STRATA_INLINE void score_block(const Whole& work, const Shape& shape, int longest, float scale) {
    constexpr int batch = 8;
    const int num_keys = keys_of_tile(shape.dim), pitch = shape.rows * shape.heads, warps = threads_of_block() / 32;
    // A tile that fits into registers is on its way while the tile before is used, if few groups of lanes
    // share it: of many, others have work meanwhile, and registers are worth more.
    const bool ahead = key_pieces(shape, num_keys) <= batch * warps && threads_of_block() <= 128;
    HeldKeys<batch> held;
    for (int j = 0; j < longest; j += num_keys) {
        const auto place = [&](int key) { return static_cast<int64_t>(work.places[j + key]) * shape.dim; };
        const auto next = [&](int key) { return static_cast<int64_t>(work.places[j + num_keys + key]) * shape.dim; };
        const int n = least(num_keys, longest - j), after = least(num_keys, longest - j - num_keys);
        barrier();  // what the tile and the weights held is used up, and places are found
        if (!ahead || j == 0) load_keys_from<batch>(work.keys, shape, n, num_keys, work.tile, place);
        else put_keys(shape, num_keys, warp(), warps, held, work.tile);
        if (ahead && after > 0) fetch_keys(work.keys, shape, after, num_keys, warp(), warps, held, next);
        barrier();
        score_tile({work.tile, work.queries, num_keys, pitch, chunk_values(shape)}, shape.dim, scale,
                   [&](int query, int key) { return work.weights + query * kPitch + j + key; });
    }
}

// The same where eight lanes share a dot.
STRATA_INLINE void score_block_split(const Whole& work, const Shape& shape, int longest, float scale) {
    constexpr int batch = 4;
    const int num_keys = keys_of_tile(shape.dim), pieces = key_pieces(shape, num_keys), warps = threads_of_block() / 32;
    const SplitWork mine = split_work(shape);
    SplitQueries q;
    load_split(work.queries, shape.rows * shape.heads, mine.query, q);
    KEEP_ROLLED
    for (int j = 0; j < longest; j += num_keys) {
        const auto place = [&](int key) { return static_cast<int64_t>(work.places[j + key]) * shape.dim; };
        barrier();  // what the tile and the weights held is used up, and places are found
        KEEP_ROLLED
        for (int first = warp(); first < pieces; first += batch * warps) {
            HeldKeys<batch> held;
            fetch_keys(work.keys, shape, least(num_keys, longest - j), num_keys, first, warps, held, place);
            put_split_keys(shape, num_keys, first, warps, held, work.tile);
        }
        barrier();
        score_split(mine, q, work.tile, num_keys, scale, work.weights + j);
    }
}

// A query's M and Z with a block's m and z, which lie where p and r come to lie.
STRATA_INLINE void merge_block(float* state, bool first) {
    const float before = state[0], top = state[2], total = state[3], best = first || top > before ? top : before;
    const float keep = shared_exp(before - best), join = shared_exp(top - best);
    state[0] = best;
    state[1] = first ? total : fma(total, join, state[1] * keep);
    state[2] = keep;
    state[3] = join;
}

// Scores of the block from j0 on, then their softmax and the merge of M and Z.
STRATA_INLINE void weigh_block(const Whole& work, const Shape& shape, int j0, int longest, float scale) {
    if (splits(shape)) score_block_split(work, shape, longest, scale);
    else score_block(work, shape, longest, scale);
    barrier();
    for (int i = warp(); i < work.unit.queries; i += threads_of_block() / 32) {
        const int n = seen_here(work.seen, shape, work.unit, i, j0);
        if (n == 0) continue;  // a group of lanes as one
        float top, total;
        softmax(work.weights + i * kPitch, n, top, total);
        if (lane() == 0) work.states[4 * i + 2] = top, work.states[4 * i + 3] = total;
    }
    barrier();
    for (int i = thread_x(); i < work.unit.queries; i += threads_of_block())
        if (seen_here(work.seen, shape, work.unit, i, j0) > 0) merge_block(work.states + 4 * i, j0 == 0);
}

template <int Q>
STRATA_INLINE void join_sums(const Whole& work, const Place& place, bool start, const Sums<Q>& block, const int (&here)[Q],
                             Sums<Q>& so_far) {
    for (int q = 0; q < Q; ++q) {
        if (here[q] == 0) continue;
        const float keep = work.states[4 * (place.query + q) + 2], join = work.states[4 * (place.query + q) + 3];
        for (int x = 0; x < 4; ++x)
            so_far.v[q][x] = start ? block.v[q][x] : fma(block.v[q][x], join, so_far.v[q][x] * keep);
    }
}

template <int Q>
STRATA_INLINE void attend(const Whole& work, const Shape& key_shape, const Shape& shape, float scale, float* out) {
    const Place place = place_of<Q>(shape.dim, shape.rows * shape.heads);
    const int all = most_seen(work.seen, work.unit.rows), fewest = least_seen(work.seen, work.unit.rows);
    Sums<Q> so_far = {};
    for (int j0 = 0; j0 < all; j0 += kBlock) {
        const int longest = least(kBlock, all - j0);
        find_places(work, key_shape, shape, j0, longest);
        weigh_block(work, key_shape, j0, longest, scale);
        const auto fetch = [&](int t, int n, HeldValues& to) {
            fetch_values_from(work.values, shape, n, 0, shape.dim, to,
                              [&](int row) { return static_cast<int64_t>(work.places[kBlock + t + row]) * shape.dim; });
        };
        HeldValues held;
        fetch(0, least(tile_rows(shape, shape.dim), longest), held);
        int here[Q];
        for (int q = 0; q < Q; ++q) here[q] = place.on ? seen_here(work.seen, shape, work.unit, place.query + q, j0) : 0;
        const Sums<Q> block = sum_fetched<Q>(shape, place, shape.dim, longest, least(kBlock, fewest - j0), here, work.weights,
                                             work.tile, held, fetch);
        join_sums(work, place, j0 == 0, block, here, so_far);
    }
    barrier();
    for (int q = 0; q < Q; ++q) {
        if (!place.on || place.query + q >= work.unit.queries) continue;
        const int64_t row = work.unit.rows.first + (place.query + q) / shape.heads;
        const int64_t head = work.unit.first_head + (place.query + q) % shape.heads;
        const bool any = seen_by(work.seen, static_cast<int>(row)) > 0;
        const float total = any ? work.states[4 * (place.query + q) + 1] : 0.0f;  // 0 / 0 is the NaN of an empty list
        Vec4 result;
        for (int x = 0; x < 4; ++x) result.v[x] = so_far.v[q][x] / total;
        *reinterpret_cast<Vec4*>(out + (row * work.heads + head) * shape.dim + place.c) = result;
    }
}

// q, out [rows, heads, dim]. Grid: x tiles of rows, y units of heads; the tiles that see most start first.
ATTENTION_KERNEL(attention_whole,
                 (const float* q, const void* keys, const float* key_scales, const int32_t* key_table,
                  const void* values, const float* value_scales, const int32_t* value_table, const int32_t* segments,
                  const int32_t* slot, const int32_t* position, const int32_t* listed, const int32_t* count, float* out,
                  int64_t rows, int64_t num_segments, int64_t heads, int64_t kv_heads, int64_t key_pages,
                  int64_t value_pages, int64_t list_width, float scale, int64_t queries, int64_t dim, int64_t unit_heads,
                  int64_t unit_rows, int64_t KEYS_PAGE, int64_t KEYS_TYPE, int64_t VALUES_PAGE, int64_t VALUES_TYPE)) {
    in_turn();
    DYNAMIC_SHARED(float, memory);
    ATTENTION_SHAPE(key_shape, KEYS);
    ATTENTION_SHAPE(shape, VALUES);
#if defined(ATTENTION_QUERIES)
    constexpr int at_once = ATTENTION_QUERIES;
#else
    const int at_once = static_cast<int>(queries);
#endif
    const Unit unit = unit_of(segments, static_cast<int>(num_segments), shape, static_cast<int>(rows), block_y(),
                              grid_x() - 1 - block_x());
    if (unit.queries == 0) return;
    const int row = unit.rows.first, pitch = shape.rows * shape.heads;
    const int32_t* list = listed ? listed + row * list_width : nullptr;
    const int64_t kv_head = unit.first_head / (heads / kv_heads), tile = tile_floats(shape);
    float* at_queries = memory + tile;
    float* weights = at_queries + (pitch * shape.dim + 3) / 4 * 4;
    const Whole work = {{keys, key_scales, key_table + slot[row] * key_pages, list, kv_heads, kv_head},
                        {values, value_scales, value_table + slot[row] * value_pages, list, kv_heads, kv_head},
                        {position, count}, unit, static_cast<int>(heads), memory, at_queries, weights,
                        weights + pitch * kPitch, reinterpret_cast<int32_t*>(weights + pitch * (kPitch + 4))};
    load_queries(q, unit, shape, work.heads, at_queries);
    barrier();
    if (at_once == 8) attend<8>(work, key_shape, shape, scale, out);
    else if (at_once == 4) attend<4>(work, key_shape, shape, scale, out);
    else if (at_once == 2) attend<2>(work, key_shape, shape, scale, out);
    else attend<1>(work, key_shape, shape, scale, out);
}

}  // namespace strata::STRATA_ISA
