// Codes of a sub-block as matrix units take them: four neighbouring lanes share one, 8 of its 32 values each, or 4 of 16.
#pragma once

#include "products_step.h"

namespace strata::STRATA_ISA {

// Of formats that have it; the block's `at` is below 4, and so are all offsets multiples of 4 where they matter:
//     contiguous                       lane c's 8 values are 8 c .., otherwise 4 c .. and 16 + 4 c ..
//     bias                             as in Codes, where there are no minima
//     table_words, fill                as Unpack<F>
//     Lane(s, c)                       what a lane keeps that is lane c for sub-blocks s, s + 8, .. of blocks
//     codes(lane, block, more, table, w)   its values of sub-block s + 8 more
//     scales(block, s, scale, minimum)
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
    STRATA_INLINE void scales(const typename Layout<F>::Block& b, int s, float& scale, float& minimum) {
        Codes<F::sub> c;
        Unpack<F>::get(b, s, {}, c);
        scale = c.scale;
        if constexpr (F::minima) minimum = c.minimum;
    }
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
    STRATA_INLINE void codes(const Lane& lane, const Layout<Q8_0>::Block& b, int, const uint32_t*, uint32_t (&w)[2]) {
        even_words<2>(further(b, 2), lane.at, w);
    }
};

template <>
struct Fragment<Q4_0> : FragmentOf<Q4_0, false, 8> {
    using Lane = PlainLane<4>;
    STRATA_INLINE void codes(const Lane& lane, const Layout<Q4_0>::Block& b, int, const uint32_t*, uint32_t (&w)[2]) {
        uint32_t x;
        even_words<1>(further(b, 2), lane.at, &x);
        w[0] = x & 0x0f0f0f0fu, w[1] = x >> 4 & 0x0f0f0f0fu;
    }
};

template <>
struct Fragment<IQ4_NL> : FragmentOf<IQ4_NL, false, 0> {
    using Lane = PlainLane<4>;
    STRATA_INLINE void codes(const Lane& lane, const Layout<IQ4_NL>::Block& b, int, const uint32_t*, uint32_t (&w)[2]) {
        uint32_t x;
        even_words<1>(further(b, 2), lane.at, &x);
        look_up({{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}}, x, w[0], w[1]);
    }
    STRATA_INLINE void scales(const Layout<IQ4_NL>::Block& b, int, float& scale, float&) { scale = float_at(b, 0); }
};

template <>
struct Fragment<Q4_K> : FragmentOf<Q4_K, false, 0> {
    struct Lane {
        int at, shift;
        STRATA_METHOD Lane(int s, int c) : at(keep(16 + s / 2 * 32 + 4 * c)), shift(s % 2 * 4) {}
    };
    STRATA_INLINE void codes(const Lane& lane, const Layout<Q4_K>::Block& b, int, const uint32_t*, uint32_t (&w)[2]) {
        STRATA_UNROLL
        for (int i = 0; i < 2; ++i) {
            even_words<1>(b, lane.at + 16 * i, w + i);
            w[i] = w[i] >> lane.shift & 0x0f0f0f0fu;
        }
    }
};

template <>
struct Fragment<Q5_K> : FragmentOf<Q5_K, false, 0> {
    struct Lane {
        int at, high, shift, bit;
        STRATA_METHOD Lane(int s, int c) : at(keep(48 + s / 2 * 32 + 4 * c)), high(keep(16 + 4 * c)), shift(s % 2 * 4), bit(s) {}
    };
    STRATA_INLINE void codes(const Lane& lane, const Layout<Q5_K>::Block& b, int, const uint32_t*, uint32_t (&w)[2]) {
        STRATA_UNROLL
        for (int i = 0; i < 2; ++i) {
            uint32_t fifth;
            even_words<1>(b, lane.at + 16 * i, w + i);
            even_words<1>(b, lane.high + 16 * i, &fifth);
            w[i] = (w[i] >> lane.shift & 0x0f0f0f0fu) | (fifth >> lane.bit & 0x01010101u) << 4;
        }
    }
};

template <>
struct Fragment<Q6_K> : FragmentOf<Q6_K, false, 32> {
    struct Lane {
        int low, high, low_shift, high_shift;
        STRATA_METHOD Lane(int s, int c)
            : low(keep(s % 4 * 16 + 4 * c)),
              high(keep(128 + s % 2 * 16 + 4 * c)),
              low_shift(s / 4 * 4),
              high_shift(s / 2 * 2) {}
    };
    STRATA_INLINE void codes(const Lane& lane, const Layout<Q6_K>::Block& b, int more, const uint32_t*, uint32_t (&w)[1]) {
        uint32_t low, high;
        even_words<1>(b, lane.low + 64 * more, &low);
        even_words<1>(b, lane.high + 32 * more, &high);
        w[0] = (low >> lane.low_shift & 0x0f0f0f0fu) | (high >> lane.high_shift & 0x03030303u) << 4;
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
    STRATA_INLINE void codes(const Lane& lane, const Layout<IQ3_S>::Block& b, int, const uint32_t* table, uint32_t (&w)[2]) {
        const uint32_t two = half_at(b, lane.index), ninth = byte_at(b, lane.ninth) >> lane.bit, signs = byte_at(b, lane.signs);
        const uint32_t* const mine = table + lane.mine;
        w[0] = with_signs(mine[((two & 255) | (ninth << 8 & 256)) * copies], signs & 15);
        w[1] = with_signs(mine[(two >> 8 | (ninth << 7 & 256)) * copies], signs >> 4);
    }
    STRATA_INLINE void scales(const Layout<IQ3_S>::Block& b, int s, float& scale, float&) {
        scale = float_at(b, 0) * static_cast<float>(1 + 2 * (byte_at(b, 106 + s / 2) >> 4 * (s % 2) & 15));
    }
};

}  // namespace strata::STRATA_ISA
