// What a thread block does with one block of positions: softmax of its scores, and sums of values in tiles.
#pragma once

#include "attention_tile.h"

namespace strata::STRATA_ISA {

// A unit: some rows of one slot with some query heads of one KV head. Query i is head i % heads of row i / heads.
struct Unit {
    RowTile rows;
    int first_head;  // of all query heads
    int queries;
};

// Entries that a row sees.
struct Seen {
    const int32_t* position;  // dense: 0 .. position
    const int32_t* count;     // or the first `count` of a list
};

STRATA_INLINE int seen_by(const Seen& seen, int row) { return seen.count ? seen.count[row] : seen.position[row] + 1; }

STRATA_INLINE int most_seen(const Seen& seen, const RowTile& rows) {
    int count = 0;
    for (int r = 0; r < rows.rows; ++r) count = most(count, seen_by(seen, rows.first + r));
    return count;
}

STRATA_INLINE int least_seen(const Seen& seen, const RowTile& rows) {
    int count = seen_by(seen, rows.first);
    for (int r = 1; r < rows.rows; ++r) count = least(count, seen_by(seen, rows.first + r));
    return count;
}

// Entries of the block from j0 on that query i of the unit sees: 0 .. 256.
STRATA_INLINE int seen_here(const Seen& seen, const Shape& shape, const Unit& unit, int i, int j0) {
    if (i >= unit.queries) return 0;
    return most(0, least(kBlock, seen_by(seen, unit.rows.first + i / shape.heads) - j0));
}

// The unit of block (.., y, z) of a grid: y = KV head and part of its query heads, z = tile of rows.
STRATA_INLINE Unit unit_of(const int32_t* segments, int num_segments, const Shape& shape, int num_rows, int y, int z) {
    RowTile rows = {z, z < num_rows ? 1 : 0};
    if (shape.rows > 1) rows = tile_of(segments, num_segments, shape.rows, z);
    return {rows, y * shape.heads, rows.rows * shape.heads};
}

// Queries of a unit, value by value: [dim][pitch], pitch = all queries of the shape.
STRATA_INLINE void load_queries(const float* q, const Unit& unit, const Shape& shape, int num_heads, float* to) {
    constexpr int batch = 8;  // values that are asked for at once
    const int pitch = shape.rows * shape.heads, all = pitch * shape.dim, step = threads_of_block();
    for (int from = thread_x(); from < all; from += batch * step) {
        float held[batch];
        UNROLL
        for (int k = 0; k < batch; ++k) {
            const int u = from + k * step, i = u / shape.dim, c = u % shape.dim;
            const int64_t row = unit.rows.first + i / shape.heads, head = unit.first_head + i % shape.heads;
            held[k] = u < all && i < unit.queries ? q[(row * num_heads + head) * shape.dim + c] : 0.0f;
        }
        UNROLL
        for (int k = 0; k < batch; ++k) {
            const int u = from + k * step;
            if (u < all) to[u % shape.dim * pitch + u / shape.dim] = held[k];
        }
    }
}

// shared_exp(x) for -86 <= x <= 0, in half of the instructions: 2^n is an addition to the exponent, for the result is a
// normal number, and the sum that rounds n has it in its low bits already.
constexpr float kNear = -86.0f;
STRATA_INLINE float exp_near(float x) {
    const float rounded = x * 1.442695f + 12582912.0f, n = rounded - 12582912.0f;
    float r = fma(-n, 0.6931472f, x);
    r = fma(-n, -1.9046542e-09f, r);
    float p = 0.0013814599f;
    p = fma(p, r, 0.008368717f);
    p = fma(p, r, 0.04166839f);
    p = fma(p, r, 0.16666521f);
    p = fma(p, r, 0.49999994f);
    p = fma(p, r, 1.0f);
    p = fma(p, r, 1.0f);
    return float_of_bits(bits_of_float(p) + (bits_of_float(rounded) << 23));
}

// Turns n scores into e_j = exp(s_j - m) and gives m and z, in every lane: one group of lanes does one query.
STRATA_INLINE void softmax(float* scores, int n, float& top, float& total) {
    float s[kBlock / 32];
    top = -infinity();
    UNROLL
    for (int i = 0; i < kBlock / 32; ++i) {
        const int j = lane() + 32 * i;
        s[i] = j < n ? scores[j] : -infinity();
        top = fmaxf(top, s[i]);  // a NaN is passed over
    }
    UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) top = fmaxf(top, shuffle_xor(top, mask));
    bool near = n == kBlock;  // and no NaN
    UNROLL
    for (int i = 0; i < kBlock / 32; ++i) {
        s[i] = s[i] - top;
        near = near && s[i] >= kNear;
    }
    float lane_total = 0.0f;
    if (near) {
        UNROLL
        for (int i = 0; i < kBlock / 32; ++i) {
            const float e = exp_near(s[i]);
            scores[lane() + 32 * i] = e;
            lane_total = lane_total + e;
        }
    } else {
        KEEP_ROLLED
        for (int j = lane(); j < n; j += 32) {
            const float e = shared_exp(scores[j] - top);
            scores[j] = e;
            lane_total = lane_total + e;
        }
    }
    total = lane_tree(lane_total);
}

// Up to kHeld chunks of a tile of values in a thread's registers, on their way to shared memory.
constexpr int kHeld = 8;
struct HeldValues {
    Chunk chunk[kHeld];
};

// Rows of a tile of `width` value dims.
STRATA_INLINE int tile_rows(const Shape& shape, int width) {
    const int held = kHeld * threads_of_block() * chunk_values(shape) / width;
    return least(least(kBlock, kTileFloats / width), held) / 4 * 4;
}

// Rows 0 .. n - 1 of a tile, n at least 1, each from value place(row) on: none waits behind a branch, so what lies
// beyond repeats the last.
template <class Place>
STRATA_INLINE void fetch_values_from(const Entries& from, const Shape& shape, int n, int c0, int width, HeldValues& held,
                                     const Place& place) {
    const int values = chunk_values(shape), across = width / values;
    UNROLL
    for (int i = 0; i < kHeld; ++i) {
        const int u = thread_x() + i * threads_of_block(), row = u / across, chunk = u % across;
        held.chunk[i] = read_chunk(from, shape, place(least(row, n - 1)) + c0 + chunk * values);
    }
}

STRATA_INLINE void fetch_values(const Entries& from, const Shape& shape, int j0, int n, int c0, int width,
                                HeldValues& held) {
    const int values = chunk_values(shape), across = width / values;
    UNROLL
    for (int i = 0; i < kHeld; ++i) {
        const int u = thread_x() + i * threads_of_block(), row = u / across, chunk = u % across;
        if (row < n) held.chunk[i] = read_chunk(from, shape, first_value(from, shape, j0 + row) + c0 + chunk * values);
    }
}

STRATA_INLINE void put_values(const Shape& shape, int n, int width, const HeldValues& held, float* tile) {
    const int values = chunk_values(shape), across = width / values;
    UNROLL
    for (int i = 0; i < kHeld; ++i) {
        const int u = thread_x() + i * threads_of_block(), row = u / across, chunk = u % across;
        if (row >= n) continue;
        for (int x = 0; x < values; x += 4) {
            Vec4 four;
            for (int y = 0; y < 4; ++y) four.v[y] = value_of(held.chunk[i], shape, x + y);
            *reinterpret_cast<Vec4*>(tile + row * width + chunk * values + x) = four;
        }
    }
}

// One thread's place in sums of values: Q queries from `query` on, dims c .. c + 3 of the slice; off: it has no work.
struct Place {
    int query, c;
    bool on;
};

template <int Q>
STRATA_INLINE Place place_of(int width, int queries) {
    const int across = width / 4, query = thread_x() / across * Q;
    return {query, thread_x() % across * 4, query < queries};
}

// Sums over one block of positions, of which the unit sees `longest` entries, all its rows `common`; `weights` has the
// scores' exponentials. Every thread of the block comes here; the first tile of values is in `held` already.
// fetch(t, n, held) brings rows t .. t + n - 1 of the block.
template <int Q, class Fetch>
STRATA_INLINE Sums<Q> sum_fetched(const Shape& shape, const Place& place, int width, int longest, int common,
                                  const int (&seen)[Q], const float* weights, float* tile, HeldValues& held,
                                  const Fetch& fetch) {
    Sums<Q> sums = {};
    const int rows = tile_rows(shape, width);
    for (int t = 0; t < longest; t += rows) {
        const int n = least(rows, longest - t), next = least(rows, longest - t - n);
        barrier();  // weights are written; the tile before is used up
        put_values(shape, n, width, held, tile);
        if (next > 0) fetch(t + n, next, held);
        barrier();
        if (!place.on) continue;
        const float* weight = weights + place.query * kPitch + t;
        const int whole = most(0, least(n, common - t));
        add_seen(sums, tile + place.c, width, weight, whole);
        int left[Q];
        for (int q = 0; q < Q; ++q) left[q] = seen[q] - t;
        if (whole < n) add_partly(sums, tile + place.c, width, weight, whole, n, left);
    }
    return sums;
}

template <int Q>
STRATA_INLINE Sums<Q> sum_block(const Entries& values, const Shape& shape, const Place& place, int j0, int c0, int width,
                                int longest, int common, const int (&seen)[Q], const float* weights, float* tile,
                                HeldValues& held) {
    return sum_fetched<Q>(shape, place, width, longest, common, seen, weights, tile, held, [&](int t, int n, HeldValues& to) {
        fetch_values(values, shape, j0 + t, n, c0, width, to);
    });
}

}  // namespace strata::STRATA_ISA
