// Dots of a tile of keys with a unit's queries by the lane rule: kernels/attention/naive.py, step 1.
#pragma once

#include "attention_tile.h"

namespace strata::STRATA_ISA {

// Keys of a tile beside the queries, both value by value.
struct DotTile {
    const float* keys;     // [dim][num_keys], by key_place
    const float* queries;  // [dim][pitch]
    int num_keys, pitch, values;
};

template <int N>
struct alignas(4 * N) Floats {
    float v[N];
};

template <int K, int Q>
struct Dots {
    float v[K][Q];
};

template <int K, int Q>
STRATA_INLINE void add(Dots<K, Q>& sum, const Dots<K, Q>& other) {
    for (int k = 0; k < K; ++k)
        for (int q = 0; q < Q; ++q) sum.v[k][q] = sum.v[k][q] + other.v[k][q];
}

template <int K, int Q>
STRATA_INLINE void dot_step(const DotTile& tile, int key, int query, int row, int chunk, Dots<K, Q>& sum) {
    const auto k = *reinterpret_cast<const Floats<K>*>(tile.keys + key_place(tile.num_keys, row, chunk, key));
    const auto x = *reinterpret_cast<const Floats<Q>*>(tile.queries + row * tile.pitch + query);
    for (int i = 0; i < K; ++i)
        for (int q = 0; q < Q; ++q) sum.v[i][q] = fma(x.v[q], k.v[i], sum.v[i][q]);
}

// Lane r + 4 m of the lane rule, for K keys from `key` on and Q queries from `query` on.
template <int K, int Q>
STRATA_INLINE Dots<K, Q> one_lane(const DotTile& tile, int dim, int key, int query, int r, int m) {
    Dots<K, Q> sum = {};
    const int full = dim / 32;
    UNROLL
    for (int i = 0; i < full; ++i)
        dot_step(tile, key, query, r + 4 * m + 32 * i, (4 * m + 32 * i) / tile.values, sum);
    const int last = r + 4 * m + 32 * full;
    if (dim % 32 && last < dim) dot_step(tile, key, query, last, (4 * m + 32 * full) / tile.values, sum);
    return sum;
}

template <int K, int Q>
STRATA_INLINE Dots<K, Q> two_lanes(const DotTile& tile, int dim, int key, int query, int r, int m) {
    Dots<K, Q> sum = one_lane<K, Q>(tile, dim, key, query, r, m);
    add(sum, one_lane<K, Q>(tile, dim, key, query, r, m + 4));
    return sum;
}

// Lanes r, r + 4, .. r + 28: the tree's steps of 16, 8 and 4.
template <int K, int Q>
STRATA_INLINE Dots<K, Q> eight_lanes(const DotTile& tile, int dim, int key, int query, int r) {
    Dots<K, Q> sum = two_lanes<K, Q>(tile, dim, key, query, r, 0);
    add(sum, two_lanes<K, Q>(tile, dim, key, query, r, 2));
    Dots<K, Q> other = two_lanes<K, Q>(tile, dim, key, query, r, 1);
    add(other, two_lanes<K, Q>(tile, dim, key, query, r, 3));
    add(sum, other);
    return sum;
}

// The lane tree depth first, so that few sums wait: r = 0 and 2, then 1 and 3 (the steps of 2 and 1).
template <int K, int Q>
STRATA_INLINE Dots<K, Q> lane_dots(const DotTile& tile, int dim, int key, int query) {
    Dots<K, Q> total = {};
    KEEP_ROLLED
    for (int r = 0; r < 2; ++r) {
        Dots<K, Q> half = eight_lanes<K, Q>(tile, dim, key, query, r);
        add(half, eight_lanes<K, Q>(tile, dim, key, query, r + 2));
        if (r == 0) total = half;
        else add(total, half);
    }
    return total;
}

// The scores of K keys with Q queries for each item of a thread: to(query, key) is where the first of K scores lies.
template <int K, int Q, class To>
STRATA_INLINE void score_items(const DotTile& tile, int dim, float scale, const To& to) {
    const int across = tile.num_keys / K, items = across * (tile.pitch / Q);
    // Groups of lanes take squares of 8 by 4 where they can: an access of theirs then reads few lines of shared memory.
    const bool square = across % 8 == 0 && tile.pitch / Q % 4 == 0;
    for (int item = thread_x(); item < items; item += threads_of_block()) {
        const int group = item / 32, left = across / 8;
        const int key = (square ? group % left * 8 + item % 8 : item % across) * K;
        const int query = (square ? group / left * 4 + item / 8 % 4 : item / across) * Q;
        const Dots<K, Q> dots = lane_dots<K, Q>(tile, dim, key, query);
        for (int i = 0; i < Q; ++i) {
            Floats<K> scores;
            for (int k = 0; k < K; ++k) scores.v[k] = dots.v[k][i] * scale;
            float* at = to(query + i, key);
            if (at) *reinterpret_cast<Floats<K>*>(at) = scores;
        }
    }
}

// As many keys for a thread as leave most threads with work: every key read from shared memory then serves Q queries,
// and every query K keys.
template <int Q, class To>
STRATA_INLINE void score_by_keys(const DotTile& tile, int dim, float scale, const To& to) {
    const int pairs = tile.num_keys * (tile.pitch / Q), enough = threads_of_block() * 3 / 4;
    if (pairs / 4 >= enough) score_items<4, Q>(tile, dim, scale, to);
    else if (pairs / 2 >= enough) score_items<2, Q>(tile, dim, scale, to);
    else score_items<1, Q>(tile, dim, scale, to);
}

template <class To>
STRATA_INLINE void score_tile(const DotTile& tile, int dim, float scale, const To& to) {
    if (tile.pitch % 4 == 0) score_by_keys<4>(tile, dim, scale, to);
    else if (tile.pitch % 2 == 0) score_by_keys<2>(tile, dim, scale, to);
    else score_by_keys<1>(tile, dim, scale, to);
}

// Keys that a tile is made for: kTileFloats values, at least the 32 that the swizzle needs.
STRATA_INLINE int keys_of_tile(int dim) { return dim <= kTileFloats / 128 ? 128 : dim <= kTileFloats / 64 ? 64 : 32; }

}  // namespace strata::STRATA_ISA
