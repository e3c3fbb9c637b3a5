// Pieces of attention: the rows that a thread block serves, entries of a paged cache as floats in shared memory, dots
// of keys and queries by the lane rule, and sums of values; kernels/attention/naive.py states every rounding.
//
// Numbers of a shape are constants on a GPU (attention/gpu.py defines ATTENTION_*: one compilation for each model), so
// that loops unroll; without the defines they are the kernel's arguments, which is how the host runs every shape.
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

constexpr int kBlock = 256;           // positions with one maximum; attention/naive.py
constexpr int kPitch = kBlock + 4;    // from one query's scores to the next's in shared memory
#if defined(ATTENTION_TILE)
constexpr int kTileFloats = ATTENTION_TILE;  // of keys or values in shared memory
#else
constexpr int kTileFloats = 8192;
#endif
constexpr int kKvFloat = 0, kKvHalf = 1, kKvByte = 2;  // kernels/addresses.py has the same numbers

struct alignas(16) Vec4 {
    float v[4];
};

struct Shape {
    int dim;    // values of a head
    int heads;  // query heads of a unit; they read one KV head
    int rows;   // rows of a unit; they are of one slot
    int page;   // entries of a page
    int type;   // what the plane holds
};

// One compilation has one kernel, so ATTENTION_THREADS is that kernel's.
#if defined(ATTENTION_DIM)
#define ATTENTION_SHAPE(name, kind) \
    constexpr Shape name = {ATTENTION_DIM, ATTENTION_HEADS, ATTENTION_ROWS, ATTENTION_##kind##_PAGE, ATTENTION_##kind##_TYPE}
#define ATTENTION_KERNEL(name, params) STRATA_KERNEL_OF(ATTENTION_THREADS, name, params)
STRATA_INLINE int threads_of_block() { return ATTENTION_THREADS; }
#else
#define ATTENTION_SHAPE(name, kind)                                                                              \
    const Shape name = {static_cast<int>(dim), static_cast<int>(unit_heads), static_cast<int>(unit_rows),          \
                        static_cast<int>(kind##_PAGE), static_cast<int>(kind##_TYPE)}
#define ATTENTION_KERNEL(name, params) STRATA_KERNEL(name, params)
STRATA_INLINE int threads_of_block() { return block_size(); }
#endif

// Rows first .. first + rows - 1 of the step; no rows where a grid is larger than the step.
struct RowTile {
    int first, rows;
};

// Tile z when every segment (slot, first row, rows) is cut into tiles of `rows` rows.
STRATA_INLINE RowTile tile_of(const int32_t* segments, int num_segments, int rows, int z) {
    for (int s = 0; s < num_segments; ++s) {
        const int length = segments[3 * s + 2], tiles = (length + rows - 1) / rows;
        if (z < tiles) return {segments[3 * s + 1] + z * rows, least(rows, length - z * rows)};
        z -= tiles;
    }
    return {0, 0};
}

// One KV head of a slot's entries; entry j is list[j] where there is a list.
struct Entries {
    const void* data;
    const float* scales;
    const int32_t* pages;
    const int32_t* list;
    int64_t kv_heads, head;
};

// Where entry j is among all that the plane holds.
STRATA_INLINE int64_t place_of_entry(const Entries& from, const Shape& shape, int j) {
    const int entry = from.list ? from.list[j] : j;
    const int64_t page = from.pages[entry / shape.page];
    return (page * from.kv_heads + from.head) * shape.page + entry % shape.page;
}

STRATA_INLINE int64_t first_value(const Entries& from, const Shape& shape, int j) {
    return place_of_entry(from, shape, j) * shape.dim;
}

// 16 bytes of an entry, and the scale of their values.
struct Chunk {
    Words4 words;
    float scale;
};

STRATA_INLINE int chunk_values(const Shape& shape) { return shape.type == kKvFloat ? 4 : shape.type == kKvHalf ? 8 : 16; }

STRATA_INLINE Chunk read_chunk(const Entries& entries, const Shape& shape, int64_t value) {
    if (shape.type == kKvFloat) return {load16(static_cast<const float*>(entries.data) + value), 1.0f};
    if (shape.type == kKvHalf) return {load16(static_cast<const uint16_t*>(entries.data) + value), 1.0f};
    return {load16(static_cast<const int8_t*>(entries.data) + value), entries.scales[value / 32]};
}

STRATA_INLINE float value_of(const Chunk& chunk, const Shape& shape, int i) {
    if (shape.type == kKvFloat) return float_of_bits(chunk.words.w[i]);
    if (shape.type == kKvHalf) return float_of_bits(chunk.words.w[i / 2] >> 16 * (i % 2) << 16);
    return static_cast<float>(static_cast<int8_t>(chunk.words.w[i / 4] >> 8 * (i % 4))) * chunk.scale;
}

// Where value `row` of key `key` lies in a tile of `keys` keys, value by value: the swizzle keeps a warp's stores of 8
// keys x 4 chunks on 32 banks, and four neighbouring keys side by side.
STRATA_INLINE int key_place(int keys, int row, int chunk, int key) { return row * keys + (key ^ (chunk & 3) << 3); }

// A group of lanes' chunks of a tile of keys, on their way through registers: 8 keys with 4 chunks of each at once.
template <int batch>
struct HeldKeys {
    Chunk chunk[batch];
};

struct KeyPlace {
    int key, chunk;
};

// Of piece `at`; a tile of `keys` keys has `keys` / 8 pieces for each four chunks of a key.
STRATA_INLINE KeyPlace key_piece(int at, int keys) {
    return {at % (keys / 8) * 8 + (lane() & 7), at / (keys / 8) * 4 + (lane() >> 3)};
}

STRATA_INLINE int key_pieces(const Shape& shape, int keys) { return keys / 8 * ((shape.dim / chunk_values(shape) + 3) / 4); }

// Pieces first, first + step, .. of keys 0 .. n - 1, n at least 1; key k begins at value place(k). No read waits behind
// a branch, so what lies beyond repeats the last.
template <int batch, class Place>
STRATA_INLINE void fetch_keys(const Entries& entries, const Shape& shape, int n, int keys, int first, int step,
                              HeldKeys<batch>& held, const Place& place) {
    const int values = chunk_values(shape), chunks = shape.dim / values;
    UNROLL
    for (int b = 0; b < batch; ++b) {
        const KeyPlace at = key_piece(first + b * step, keys);
        held.chunk[b] = read_chunk(entries, shape, place(least(at.key, n - 1)) + least(at.chunk, chunks - 1) * values);
    }
}

template <int batch>
STRATA_INLINE void put_keys(const Shape& shape, int keys, int first, int step, const HeldKeys<batch>& held, float* tile) {
    const int values = chunk_values(shape), chunks = shape.dim / values, pieces = key_pieces(shape, keys);
    UNROLL
    for (int b = 0; b < batch; ++b) {
        const KeyPlace at = key_piece(first + b * step, keys);
        if (first + b * step >= pieces || at.chunk >= chunks) continue;
        float* const to = tile + key_place(keys, at.chunk * values, at.chunk, at.key);
        for (int i = 0; i < values; ++i) to[i * keys] = value_of(held.chunk[b], shape, i);
    }
}

// Keys 0 .. n - 1, n at least 1, to `tile`; `keys`, a multiple of 32, is what the tile is made for. Each thread asks
// for `batch` chunks at once.
template <int batch, class Place>
STRATA_INLINE void load_keys_from(const Entries& entries, const Shape& shape, int n, int keys, float* tile, const Place& place) {
    const int pieces = key_pieces(shape, keys), warps = threads_of_block() / 32;
    for (int first = warp(); first < pieces; first += batch * warps) {
        HeldKeys<batch> held;
        fetch_keys(entries, shape, n, keys, first, warps, held, place);
        put_keys(shape, keys, first, warps, held, tile);
    }
}

STRATA_INLINE void load_keys(const Entries& entries, const Shape& shape, int j0, int n, int keys, float* tile) {
    if (n < 1) return;
    load_keys_from<4>(entries, shape, n, keys, tile, [&](int key) { return first_value(entries, shape, j0 + key); });
}

template <int Q>
struct Sums {
    float v[Q][4];  // four neighbouring dims of each query
};

template <int Q>
STRATA_INLINE void add_value(Sums<Q>& sums, const Vec4& value, const float* weight, int j) {
    for (int q = 0; q < Q; ++q)
        for (int x = 0; x < 4; ++x) sums.v[q][x] = fma(weight[q * kPitch + j], value.v[x], sums.v[q][x]);
}

// Entries from .. to - 1 of a tile for Q queries that all see them; weight[q * kPitch + j] belongs to entry j.
template <int Q>
STRATA_INLINE void add_seen(Sums<Q>& sums, const float* values, int pitch, const float* weight, int to) {
    int j = 0;
    for (; j + 4 <= to; j += 4) {
        Vec4 w[Q];
        for (int q = 0; q < Q; ++q) w[q] = *reinterpret_cast<const Vec4*>(weight + q * kPitch + j);
        UNROLL
        for (int i = 0; i < 4; ++i) {
            const Vec4 value = *reinterpret_cast<const Vec4*>(values + (j + i) * pitch);
            for (int q = 0; q < Q; ++q)
                for (int x = 0; x < 4; ++x) sums.v[q][x] = fma(w[q].v[i], value.v[x], sums.v[q][x]);
        }
    }
    for (; j < to; ++j) add_value(sums, *reinterpret_cast<const Vec4*>(values + j * pitch), weight, j);
}

// Entries that not all of the queries see: query q the first seen[q] of the tile.
template <int Q>
STRATA_INLINE void add_partly(Sums<Q>& sums, const float* values, int pitch, const float* weight, int from, int to,
                              const int (&seen)[Q]) {
    for (int j = from; j < to; ++j) {
        const Vec4 value = *reinterpret_cast<const Vec4*>(values + j * pitch);
        for (int q = 0; q < Q; ++q)
            for (int x = 0; x < 4; ++x)
                if (j < seen[q]) sums.v[q][x] = fma(weight[q * kPitch + j], value.v[x], sums.v[q][x]);
    }
}

}  // namespace strata::STRATA_ISA
