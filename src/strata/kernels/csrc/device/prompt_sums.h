// Sums of one thread in the order of the lane rule's tree (prompt_layout.h): the current lane's, and one for each level
// of the tree that waits for its partner. The two highest levels, which are used least, wait in shared memory.
#pragma once

#include "bytes.h"
#include "prompt_layout.h"

namespace strata::STRATA_ISA {

constexpr int deep_levels = 2;

template <int N>
struct TreeSums {
    float now[N], level0[N], level1[N], level2[N];
};

template <int N>
STRATA_INLINE void clear(float (&sums)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) sums[i] = 0.0f;
}

template <int N>
STRATA_INLINE void keep(const float (&now)[N], float (&level)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) level[i] = now[i];
}

template <int N>
STRATA_INLINE void join(float (&now)[N], const float (&level)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) now[i] = level[i] + now[i];
}

// The other half of a level has no lanes; -0 becomes +0.
template <int N>
STRATA_INLINE void join_zero(float (&now)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) now[i] = now[i] + 0.0f;
}

// `deep` is this thread's place among those of the block: [deep_levels][N][threads].
template <int N>
STRATA_INLINE void keep_deep(const float (&now)[N], float* deep, int threads) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) deep[i * threads] = now[i];
}

template <int N>
STRATA_INLINE void join_deep(float (&now)[N], const float* deep, int threads) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) now[i] = deep[i * threads] + now[i];
}

// The lane's sum is complete: it climbs as far as its partners are, and waits there. At the top `now` is the result.
template <int N>
STRATA_INLINE void climb(TreeSums<N>& s, const Climb& c, float* deep, int threads) {
    float* const higher = deep + N * threads;
    STRATA_ROLL
    for (int level = 0; level < c.levels; ++level) {
        if (c.zeros >> level & 1) join_zero(s.now);
        else if (level == 0) join(s.now, s.level0);
        else if (level == 1) join(s.now, s.level1);
        else if (level == 2) join(s.now, s.level2);
        else if (level == 3) join_deep(s.now, deep, threads);
        else join_deep(s.now, higher, threads);
    }
    if (c.levels > 4) return;
    if (c.levels == 0) keep(s.now, s.level0);
    else if (c.levels == 1) keep(s.now, s.level1);
    else if (c.levels == 2) keep(s.now, s.level2);
    else if (c.levels == 3) keep_deep(s.now, deep, threads);
    else keep_deep(s.now, higher, threads);
    clear(s.now);
}

}  // namespace strata::STRATA_ISA
