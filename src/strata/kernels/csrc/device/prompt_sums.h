// Sums of one thread in the order of the lane rule's tree (prompt_layout.h). Lane l of the first half is added up in
// `even`, lane l + 16 in `odd`, and what climbs goes on in `odd`; at each higher level a sum waits for its partner. The
// pairs have their turns in the order of `turn_of`.
#pragma once

#include "bytes.h"
#include "prompt_layout.h"

namespace strata::STRATA_ISA {

constexpr int waiting_levels = 2;  // whose sums wait in shared memory

template <int N>
struct TreeSums {
    float even[N], odd[N], level1[N];
};

template <int N>
STRATA_INLINE void clear(float (&sums)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) sums[i] = 0.0f;
}

template <int N>
STRATA_INLINE void join(float (&sums)[N], const float (&partner)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) sums[i] = partner[i] + sums[i];
}

template <int N>
STRATA_INLINE void add_to(float (&sums)[N], const float (&first)[N], const float (&second)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) sums[i] = first[i] + second[i];
}

template <int N>
STRATA_INLINE void keep(const float (&sums)[N], float (&level)[N]) {
    STRATA_UNROLL
    for (int i = 0; i < N; ++i) level[i] = sums[i];
}

// Where the sums of a thread wait at the levels from 2 on: fours of all of the block's threads side by side in shared
// memory, which is what one access can take; and the last level, which is used once for a result, in the thread's own.
template <int N>
struct WaitingSums {
    float* shared;  // [waiting_levels][N / 4][threads][4], at this thread's place
    int threads;
    float last[N];

    STRATA_METHOD float* four(int level, int i) { return shared + ((level - 2) * (N / 4) + i) * threads * 4; }

    STRATA_METHOD void put(int level, const float (&sums)[N]) {
        if (level == 4) {
            volatile float* const to = last;  // in memory: registers have no room for it
            STRATA_UNROLL
            for (int i = 0; i < N; ++i) to[i] = sums[i];
            return;
        }
        STRATA_UNROLL
        for (int i = 0; i < N / 4; ++i) {
            Words4 four_sums;
            STRATA_UNROLL
            for (int j = 0; j < 4; ++j) four_sums.w[j] = bits_of_float(sums[4 * i + j]);
            *reinterpret_cast<Words4*>(four(level, i)) = four_sums;
        }
    }

    STRATA_METHOD void join(int level, float (&sums)[N]) {
        if (level == 4) {
            const volatile float* const from = last;
            STRATA_UNROLL
            for (int i = 0; i < N; ++i) sums[i] = from[i] + sums[i];
            return;
        }
        STRATA_UNROLL
        for (int i = 0; i < N / 4; ++i) {
            const Words4 partner = load16(four(level, i));
            STRATA_UNROLL
            for (int j = 0; j < 4; ++j) sums[4 * i + j] = float_of_bits(partner.w[j]) + sums[4 * i + j];
        }
    }
};

// The sum of a pair's lanes is in `odd` and climbs as far as its partners are, and waits there. After the last pair
// `odd` is the result. `count`: terms of a row. A branch without terms would be a zero to add, which changes only -0.
// Returns whether the sum goes on to level 2.
template <int N>
STRATA_INLINE bool climb_low(TreeSums<N>& s, int pair, int count) {
    if (pair & 1) {
        join(s.odd, s.level1);
    } else if (turn_of(2 * pair) + 8 < count) {
        keep(s.odd, s.level1);
        return false;
    }
    return true;
}

template <int N>
STRATA_INLINE void climb_high(TreeSums<N>& s, int pair, int count, WaitingSums<N>& waiting) {
    const int first = turn_of(2 * pair);
    STRATA_ROLL
    for (int level = 2; level < 5; ++level) {
        if ((pair >> (level - 1) & 1) != 0) {
            waiting.join(level, s.odd);
        } else if ((first & (16 >> level) - 1) + (16 >> level) < count) {
            waiting.put(level, s.odd);
            return;
        }
    }
}

}  // namespace strata::STRATA_ISA
