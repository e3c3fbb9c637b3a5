// Sums of one thread in the order of the lane rule's tree (prompt_layout.h). Lane l of the first half is added up in `even`,
// lane l + 16 in `odd`, and what climbs goes on in `odd`; at each higher level a sum waits for its partner, from level 2
// on in shared memory. The pairs have their turns in the order of `turn_of`.
#pragma once

#include "bytes.h"
#include "prompt_layout.h"

namespace strata::STRATA_ISA {

constexpr int deep_levels = 3;

template <int N>
struct TreeSums {
    float even[N], odd[N], level1[N];
};

template <int N>
STRATA_INLINE void clear(float (&sums)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) sums[i] = 0.0f;
}

// sums = partner + sums; without a partner + 0, which changes -0.
template <int N>
STRATA_INLINE void join(float (&sums)[N], const float (&partner)[N], bool none) {
    if (none) {
        STRATA_UNROLL
        for (int i = 0; i < N; ++i) sums[i] = sums[i] + 0.0f;
    } else {
        STRATA_UNROLL
        for (int i = 0; i < N; ++i) sums[i] = partner[i] + sums[i];
    }
}

template <int N>
STRATA_INLINE void keep(const float (&sums)[N], float (&level)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) level[i] = sums[i];
}

// The same in shared memory: `deep` is this thread's place among those of the block, [deep_levels][N][threads].
template <int N>
STRATA_INLINE void join_deep(float (&sums)[N], const float* deep, int threads, bool none) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) sums[i] = (none ? 0.0f : deep[i * threads]) + sums[i];
}

template <int N>
STRATA_INLINE void keep_deep(const float (&sums)[N], float* deep, int threads) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) deep[i * threads] = sums[i];
}

// The levels from 2 on, which wait in shared memory. `first` is the lowest lane of the pair.
template <int N>
STRATA_INLINE void climb_high(TreeSums<N>& s, int pair, int first, int count, float* deep, int threads) {
    STRATA_ROLL
    for (int level = 2; level < 5; ++level) {
        float* const at = deep + (level - 2) * N * threads;
        const bool partner = (pair >> (level - 1) & 1) != 0, none = !partner && (first & (16 >> level) - 1) + (16 >> level) >= count;
        if (!partner && !none) {
            keep_deep(s.odd, at, threads);
            return;
        }
        join_deep(s.odd, at, threads, none);
    }
}

// Both lanes of a pair are complete: their sum climbs as far as its partners are, and waits there. After the last pair
// `odd` is the result. `count`: sub-blocks of a row; only pairs whose first lane has one have their turn.
template <int N>
STRATA_INLINE void climb(TreeSums<N>& s, int pair, int count, float* deep, int threads) {
    const int first = turn_of(2 * pair);
    join(s.odd, s.even, false);
    if (pair & 1) {
        join(s.odd, s.level1, false);
    } else if (first + 8 < count) {
        keep(s.odd, s.level1);
        return;
    } else {
        join(s.odd, s.odd, true);
    }
    climb_high(s, pair, first, count, deep, threads);
}

}  // namespace strata::STRATA_ISA
