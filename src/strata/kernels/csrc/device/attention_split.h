// Dots of a tile of keys with a unit's queries by the lane rule (attention/naive.py, step 1), for heads of 128 values:
// eight neighbouring lanes share a dot, 16 values each, and keep those of eight queries in registers. So a value of a
// key that is read from shared memory, which returns 32 words a cycle, serves eight multiply-adds, and eight lanes'
// sums cost seven shuffles.
#pragma once

#include "attention_tile.h"

namespace strata::STRATA_ISA {

constexpr int kSplitDim = 128, kSplitLanes = 8, kSplitValues = kSplitDim / kSplitLanes;  // of a head; of a dot; of a lane
constexpr int kSplitChains = 32 / kSplitLanes;  // lanes of the rule that are a lane's
constexpr int kSplitQueries = 8, kSplitGroup = 32 / kSplitLanes * kSplitQueries;  // of a lane, of a group of lanes
constexpr int kSplitPitch = kSplitValues + 4;  // from one lane's values of a key to the next's: no two share banks
constexpr int kSplitKey = kSplitLanes * kSplitPitch + 4;  // from one key to the next
constexpr int kSplitKeys = 4;  // of a lane at once

// Whether a unit's queries are a multiple of what a group of lanes does.
STRATA_INLINE bool splits(const Shape& shape) { return shape.dim == kSplitDim && shape.rows * shape.heads % kSplitGroup == 0; }

// As put_keys: value d of a key lies behind those of its lane d % 8.
template <int batch>
STRATA_INLINE void put_split_keys(const Shape& shape, int keys, int first, int step, const HeldKeys<batch>& held, float* tile) {
    const int values = chunk_values(shape), chunks = kSplitDim / values, pieces = key_pieces(shape, keys);
    const int rounds = values > kSplitLanes ? values / kSplitLanes : 1, turns = values < kSplitLanes ? kSplitLanes / values : 1;
    UNROLL
    for (int b = 0; b < batch; ++b) {
        const KeyPlace at = key_piece(first + b * step, keys);
        if (first + b * step >= pieces || at.chunk >= chunks) continue;
        const uint32_t chunk = static_cast<uint32_t>(at.chunk), turn = chunk % static_cast<uint32_t>(turns);
        float* const to = tile + at.key * kSplitKey + turn * values * kSplitPitch + chunk / turns * rounds;
        UNROLL
        for (int i = 0; i < values; ++i) to[i % kSplitLanes * kSplitPitch + i / kSplitLanes] = value_of(held.chunk[b], shape, i);
    }
}

// This lane's values of its queries: slot s has query s ^ turn, so that at each level of the tree the lane keeps the
// lower half of its sums and gives away the other without choosing.
struct SplitQueries {
    float v[kSplitQueries][kSplitValues];
};

STRATA_INLINE int split_turn() { return lane() % kSplitLanes; }

// queries [dim][pitch], eight of them from `query` on.
STRATA_INLINE void load_split(const float* queries, int pitch, int query, SplitQueries& q) {
    UNROLL
    for (int m = 0; m < kSplitValues; ++m)
        UNROLL
        for (int s = 0; s < kSplitQueries; ++s)
            q.v[s][m] = queries[(split_turn() + kSplitLanes * m) * pitch + query + (s ^ split_turn())];
}

// What this lane has of a key's dots: its lanes of the rule, added up.
STRATA_INLINE void split_sums(const float* key, const SplitQueries& q, float (&found)[kSplitQueries]) {
    float sums[kSplitChains][kSplitQueries] = {};
    UNROLL
    for (int m = 0; m < kSplitValues; m += 4) {
        const Vec4 k = *reinterpret_cast<const Vec4*>(key + m);
        UNROLL
        for (int i = 0; i < 4; ++i)
            UNROLL
            for (int s = 0; s < kSplitQueries; ++s)
                sums[i % kSplitChains][s] = fma(q.v[s][m + i], k.v[i], sums[i % kSplitChains][s]);
    }
    UNROLL
    for (int s = 0; s < kSplitQueries; ++s) found[s] = (sums[0][s] + sums[2][s]) + (sums[1][s] + sums[3][s]);
}

// The dots of neighbouring keys with query `turn` of this lane's, all at once: a shuffle's result is long in coming.
STRATA_INLINE Vec4 split_dots(const float* key, const SplitQueries& q) {
    float v[kSplitKeys][kSplitQueries];
    UNROLL
    for (int k = 0; k < kSplitKeys; ++k) split_sums(key + k * kSplitKey, q, v[k]);
    UNROLL
    for (int half = kSplitQueries / 2; half > 0; half /= 2)
        UNROLL
        for (int k = 0; k < kSplitKeys; ++k)
            UNROLL
            for (int s = 0; s < half; ++s) v[k][s] = v[k][s] + shuffle_xor(v[k][s + half], half);
    return {{v[0][0], v[1][0], v[2][0], v[3][0]}};
}

// What a group of lanes does: queries from `query` on, keys from `first` on, `step` further each time. Units have four
// groups of lanes for as many queries as one does.
struct SplitWork {
    int query, first, step;
};

STRATA_INLINE SplitWork split_work(const Shape& shape) {
    const int parts = shape.rows * shape.heads / kSplitGroup, groups = threads_of_block() / 32 / parts;
    return {warp() % parts * kSplitGroup + lane() / kSplitLanes * kSplitQueries, warp() / parts * kSplitKeys, groups * kSplitKeys};
}

// Scores of the tile's `keys` keys, a multiple of four: weights[query * kPitch + key].
STRATA_INLINE void score_split(const SplitWork& work, const SplitQueries& q, const float* tile, int keys, float scale,
                               float* weights) {
    const float* const mine = tile + split_turn() * kSplitPitch;
    float* const to = weights + (work.query + split_turn()) * kPitch;
    KEEP_ROLLED
    for (int key = work.first; key < keys; key += work.step) {
        Vec4 scores = split_dots(mine + key * kSplitKey, q);
        UNROLL
        for (int k = 0; k < kSplitKeys; ++k) scores.v[k] = scores.v[k] * scale;
        *reinterpret_cast<Vec4*>(to + key) = scores;
    }
}

}  // namespace strata::STRATA_ISA
