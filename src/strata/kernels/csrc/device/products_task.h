// What one lane of the products unpacks at once of blocks of 256 values: sub-blocks that share bytes.
#pragma once

#include "products_step.h"

namespace strata::STRATA_ISA {

// Of formats that have it: a task is `subs` sub-blocks, a block has `each` tasks. The lanes of a group are split into
// `subs` parts, one for each row; the 32 / subs lanes of a part take the row's tasks in turn.
//     place(p)              where the first sub-block of lane p's tasks lies in a record of x; the next ones lie `places` further
//     Lane(task)            what a lane keeps that has the tasks of this number in their blocks
//     get(lane, b, codes)   unpacks the lane's task of a block
//     tree(sums)            of a lane's `subs` sums over all lanes of a row, in the order of the lane rule
template <class F>
struct Task {
    static constexpr int subs = 1;
};

template <class F>
constexpr bool has_tasks = Task<F>::subs > 1;

// The block's bytes; b.at is below 4.
template <int align>
STRATA_INLINE const uint8_t* bytes_of(const Bytes<align>& b) {
    return reinterpret_cast<const uint8_t*>(b.words) + (align % 4 ? b.at : 0);
}
STRATA_INLINE float float_in(const uint8_t* at) { return half_to_float(*reinterpret_cast<const uint16_t*>(at)); }

// Values l and l + 32 of 128 share bytes of the low nibbles, all four that are 32 apart those of the high pairs. Sub-block
// 16 p + 8 n + 2 j + h of 32 is number j of the lane 4 p + 2 n + h.
template <>
struct Task<Q6_K> {
    static constexpr int subs = 4, each = 4, places = 8;
    struct Lane {
        int low, high, scale;  // bytes of a block
        STRATA_METHOD explicit Lane(int task)
            : low(keep(task / 2 * 64 + task % 2 * 16)), high(keep(128 + task * 16)), scale(keep(192 + task / 2 * 8 + task % 2)) {}
    };
    STRATA_INLINE int place(int p) { return p; }
    STRATA_INLINE void get(const Lane& lane, const Layout<Q6_K>::Block& b, Codes<16> (&c)[4]) {
        uint32_t first[4], second[4], high[4];
        even_words<4>(b, lane.low, first);
        even_words<4>(b, lane.low + 32, second);
        even_words<4>(b, lane.high, high);
        constexpr uint32_t low = 0x0f0f0f0fu;
        STRATA_UNROLL
        for (int i = 0; i < 4; ++i) {  // of the upper bits, what a choice by `low` keeps and is not wanted is cleared before
            const uint32_t even = settled(high[i] & 0x33333333u), odd = settled(high[i] & 0xccccccccu);
            c[0].w[i] = choose_bits(low, first[i], even << 4);
            c[1].w[i] = choose_bits(low, second[i], odd << 2);
            c[2].w[i] = choose_bits(low, first[i] >> 4, even);
            c[3].w[i] = choose_bits(low, second[i] >> 4, odd >> 2);
        }
        const uint8_t* const bytes = bytes_of(b);
        const float d = float_in(bytes + 208);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) {
            c[j].scale = d * static_cast<float>(reinterpret_cast<const int8_t*>(bytes + lane.scale)[2 * j]);
            c[j].bias = 32;
        }
    }
    STRATA_INLINE float tree(float (&v)[4]) {
        STRATA_UNROLL
        for (int mask = 4; mask > 1; mask >>= 1) {
            STRATA_UNROLL
            for (int j = 0; j < 4; ++j) v[j] = v[j] + shuffle_xor(v[j], mask);
        }
        const float sum = (v[0] + v[2]) + (v[1] + v[3]);
        return sum + shuffle_xor(sum, 1);
    }
};

}  // namespace strata::STRATA_ISA
