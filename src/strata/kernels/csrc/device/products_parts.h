// Parts of blocks of 256 values: sub-blocks that share bytes, which one lane unpacks at once.
#pragma once

#include "products_step.h"

namespace strata::STRATA_ISA {

// Of formats that have it: a part is `subs` sub-blocks. The lanes of a group are split among `subs` rows, and the lanes
// of a row take its parts in turn; so a lane has the same `subs` sums of the lane rule's 32 in all steps.
//     block_of(p)           of a step's blocks, the one in which lane p's part lies
//     place(p)              where the first sub-block of lane p's parts lies in a record of x
//     Lane(p)               what a lane keeps; `places`: bytes from there to the next sub-block
//     get(lane, b, codes)   unpacks the lane's part of a block
//     tree(lane, sums)      of a lane's sums over all lanes of a row, in the order of the lane rule
template <class F>
struct Part {
    static constexpr int subs = 1;
};

template <class F>
constexpr bool has_parts = Part<F>::subs > 1;

// The block's bytes; b.at is below 4.
template <int align>
STRATA_INLINE const uint8_t* bytes_of(const Bytes<align>& b) {
    return reinterpret_cast<const uint8_t*>(b.words) + (align % 4 ? b.at : 0);
}
STRATA_INLINE float float_in(const uint8_t* at) { return half_to_float(*reinterpret_cast<const uint16_t*>(at)); }

// A sum over lanes of a row that differ in these bits of their number.
template <int from, int to>
STRATA_INLINE float levels(float v) {
    STRATA_UNROLL
    for (int mask = from; mask >= to; mask >>= 1) v = v + shuffle_xor(v, mask);
    return v;
}

// Values l and l + 32 of 128 share bytes of the low nibbles, all four that are 32 apart those of the high pairs.
// Sub-block 16 b + 8 n + 2 j + h of 32 is number j of the lane 4 b + 2 n + h.
template <>
struct Part<Q6_K> {
    static constexpr int subs = 4;
    struct Lane {
        static constexpr int places = 16 * 8;
        int low, high, scale;  // bytes of a block
        STRATA_METHOD explicit Lane(int p)
            : low(keep(p % 4 / 2 * 64 + p % 2 * 16)), high(keep(128 + p % 4 * 16)), scale(keep(192 + p % 4 / 2 * 8 + p % 2)) {}
    };
    STRATA_INLINE int block_of(int p) { return p / 4; }
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
    STRATA_INLINE float tree(const Lane&, float (&v)[4]) {
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) v[j] = levels<4, 2>(v[j]);
        return levels<1, 1>((v[0] + v[2]) + (v[1] + v[3]));
    }
};

// Sub-blocks 2 g and 2 g + 1 of a block are the low and the high nibbles of the same 32 bytes; lane p has g = p % 4.
// Lanes of odd blocks begin with the second one: so eight neighbouring lanes read eight lines of 16 bytes of x in
// different banks.
struct NibblePartLane {
    int codes, scale, swapped, places;
    bool upper;
    STRATA_METHOD explicit NibblePartLane(int p)
        : codes(keep(p % 4 * 32)), scale(keep(p % 2 * 16)), swapped(keep(p / 4 % 2)),
          places(keep(16 - p / 4 % 2 * 32)), upper(p % 4 >= 2) {}
};

// Scales and minima of the two sub-blocks, from the 16 bytes at a block's beginning.
STRATA_INLINE void pair_scales(const Words4& head, const NibblePartLane& lane, Codes<32> (&c)[2]) {
    const uint32_t a = head.w[1] >> lane.scale, b = head.w[2] >> lane.scale, both = head.w[3] >> lane.scale;
    const uint32_t s = lane.upper ? (both & 0x0f0fu) | (a >> 2 & 0x3030u) : a & 0x3f3fu;
    const uint32_t m = lane.upper ? (both >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u) : b & 0x3f3fu;
    const float d = half_to_float(head.w[0] & 0xffff), least = half_to_float(head.w[0] >> 16);
    const int first = 8 * lane.swapped, second = 8 - first;
    c[0].scale = d * float_of_small(s >> first & 255), c[1].scale = d * float_of_small(s >> second & 255);
    c[0].minimum = least * float_of_small(m >> first & 255), c[1].minimum = least * float_of_small(m >> second & 255);
    c[0].bias = c[1].bias = 0;
}

template <class F>
struct NibblePart {
    static constexpr int subs = 2;
    using Lane = NibblePartLane;
    STRATA_INLINE int block_of(int p) { return p / 4; }
    STRATA_INLINE int place(int p) { return 2 * p + p / 4 % 2; }
    STRATA_INLINE float tree(const Lane& lane, float (&v)[2]) {
        const float low = lane.swapped ? v[1] : v[0], high = lane.swapped ? v[0] : v[1];
        return levels<8, 1>(low) + levels<8, 1>(high);
    }
};

template <>
struct Part<Q4_K> : NibblePart<Q4_K> {
    STRATA_INLINE void get(const Lane& lane, const Layout<Q4_K>::Block& b, Codes<32> (&c)[2]) {
        const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(b.words);
        const int first = 4 * lane.swapped, second = 4 - first;
        STRATA_UNROLL
        for (int h = 0; h < 2; ++h) {
            const Words4 half = load16(bytes + 16 + lane.codes + 16 * h);
            STRATA_UNROLL
            for (int i = 0; i < 4; ++i) {
                c[0].w[4 * h + i] = half.w[i] >> first & 0x0f0f0f0fu;
                c[1].w[4 * h + i] = half.w[i] >> second & 0x0f0f0f0fu;
            }
        }
        pair_scales(load16(bytes), lane, c);
    }
};

template <>
struct Part<Q5_K> : NibblePart<Q5_K> {
    STRATA_INLINE void get(const Lane& lane, const Layout<Q5_K>::Block& b, Codes<32> (&c)[2]) {
        const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(b.words);
        const int first = 4 * lane.swapped, second = 4 - first;
        const int bit = lane.codes / 16 + lane.swapped, other = lane.codes / 16 + 1 - lane.swapped;
        STRATA_UNROLL
        for (int h = 0; h < 2; ++h) {
            const Words4 half = load16(bytes + 48 + lane.codes + 16 * h), fifth = load16(bytes + 16 + 16 * h);
            STRATA_UNROLL
            for (int i = 0; i < 4; ++i) {
                c[0].w[4 * h + i] = (half.w[i] >> first & 0x0f0f0f0fu) | (fifth.w[i] >> bit << 4 & 0x10101010u);
                c[1].w[4 * h + i] = (half.w[i] >> second & 0x0f0f0f0fu) | (fifth.w[i] >> other << 4 & 0x10101010u);
            }
        }
        pair_scales(load16(bytes), lane, c);
    }
};

}  // namespace strata::STRATA_ISA
