// Codes of a sub-block of 32 values as matrix units take them: four neighbouring lanes share one, 8 values each.
#pragma once

#include "products_step.h"

namespace strata::STRATA_ISA {

// Of formats that have it; the block's `at` is below 4, and so are all offsets multiples of 4 where they matter:
//     contiguous                       lane c's 8 values are 8 c .., otherwise 4 c .. and 16 + 4 c ..
//     bias                             as in Codes
//     table_words, fill                as Unpack<F>
//     Lane(s, c)                       what a lane keeps that is lane c for sub-blocks s, s + 8, .. of blocks
//     codes(lane, block, table, w)     its values of the sub-block
//     scale(block, s)
template <class F>
struct Fragment {
    static constexpr bool known = false;
};

template <class F>
constexpr bool has_fragments = Fragment<F>::known;

template <class F, bool in_one_piece, int subtracted>
struct FragmentOf : NoTable {
    static constexpr bool known = true, contiguous = in_one_piece;
    static constexpr int bias = subtracted;
    STRATA_INLINE float scale(const typename Layout<F>::Block& b, int) { return float_at(b, 0); }
};

// Blocks of one sub-block: lane c's codes begin 4 c or 8 c bytes after byte 2.
template <int each>
struct PlainLane {
    int at;
    STRATA_METHOD PlainLane(int, int c) : at(keep(each * c)) {}
};

template <>
struct Fragment<Q8_0> : FragmentOf<Q8_0, true, 0> {
    using Lane = PlainLane<8>;
    STRATA_INLINE void codes(const Lane& lane, const Layout<Q8_0>::Block& b, const uint32_t*, uint32_t (&w)[2]) {
        even_words<2>(further(b, 2), lane.at, w);
    }
};

template <>
struct Fragment<Q4_0> : FragmentOf<Q4_0, false, 8> {
    using Lane = PlainLane<4>;
    STRATA_INLINE void codes(const Lane& lane, const Layout<Q4_0>::Block& b, const uint32_t*, uint32_t (&w)[2]) {
        uint32_t x;
        even_words<1>(further(b, 2), lane.at, &x);
        w[0] = x & 0x0f0f0f0fu, w[1] = x >> 4 & 0x0f0f0f0fu;
    }
};

template <>
struct Fragment<IQ4_NL> : FragmentOf<IQ4_NL, false, 0> {
    using Lane = PlainLane<4>;
    STRATA_INLINE void codes(const Lane& lane, const Layout<IQ4_NL>::Block& b, const uint32_t*, uint32_t (&w)[2]) {
        uint32_t x;
        even_words<1>(further(b, 2), lane.at, &x);
        look_up({{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}}, x, w[0], w[1]);
    }
};

// The grid lies eight times in shared memory, so that lanes that look up different entries rarely meet in a bank.
template <>
struct Fragment<IQ3_S> : FragmentOf<IQ3_S, true, 0> {
    static constexpr int copies = 8, table_words = 512 * copies;
    struct Lane {
        int index, ninth, signs, mine, bit;
        STRATA_METHOD Lane(int s, int c)
            : index(keep(2 + 8 * s + 2 * c)),
              ninth(66 + s),
              signs(keep(74 + 4 * s + c)),
              mine(keep(lane() % copies)),
              bit(2 * c) {}
    };
    STRATA_INLINE void fill(uint32_t* table, int thread, int threads) {
        for (int i = thread; i < table_words; i += threads)
            table[i] = *reinterpret_cast<const uint32_t*>(grid_iq3_s[i / copies]);
    }
    STRATA_INLINE void codes(const Lane& lane, const Layout<IQ3_S>::Block& b, const uint32_t* table, uint32_t (&w)[2]) {
        const uint32_t two = half_at(b, lane.index), ninth = byte_at(b, lane.ninth) >> lane.bit, signs = byte_at(b, lane.signs);
        const uint32_t* const mine = table + lane.mine;
        w[0] = with_signs(mine[((two & 255) | (ninth << 8 & 256)) * copies], signs & 15);
        w[1] = with_signs(mine[(two >> 8 | (ninth << 7 & 256)) * copies], signs >> 4);
    }
    STRATA_INLINE float scale(const Layout<IQ3_S>::Block& b, int s) {
        return float_at(b, 0) * static_cast<float>(1 + 2 * (byte_at(b, 106 + s / 2) >> 4 * (s % 2) & 15));
    }
};

}  // namespace strata::STRATA_ISA
