// One lane unpacks one sub-block of a block that lies in shared memory: what blocks.h decodes, sub-block by sub-block
// and four codes in a word. The sub-block's integer sum is sum(w q) - bias sum(q).
#pragma once

#include "bytes.h"

#include "../blocks_iq.h"
#include "../blocks_legacy.h"

namespace strata::STRATA_ISA {

template <int sub>
struct Codes {
    uint32_t w[sub / 4];
    float scale, minimum;
    int32_t bias;
};

// What the products know of a format beside its struct in blocks.h.
template <class F>
constexpr bool scales_apart = false;
template <>
constexpr bool scales_apart<NVFP4_PAIRS> = true;

// Whether Unpack<F>::halves gives (w - 1) / 2 for the products, where that costs less than w.
template <class F>
constexpr bool has_halves = false;
template <>
constexpr bool has_halves<IQ3_S> = true;

// Whether Unpack<F>::mixed gives a sub-block's values in two parts, of which one is 0 and is not looked up, and those
// of its halves in turns: 0, 16, 1, 17, .. That costs half of what `get` does, and x has to be mixed likewise.
template <class F>
constexpr bool is_mixed = false;
template <>
constexpr bool is_mixed<IQ4_NL> = true;
template <>
constexpr bool is_mixed<IQ4_XS> = true;
template <>
constexpr bool is_mixed<MXFP4> = true;

// The codes are w - less.
struct MixedCodes : Codes<32> {
    uint32_t less[8];
};

template <class F, bool mixed = is_mixed<F>>
struct SplitCodesOf {
    using Type = Codes<F::sub>;
};
template <class F>
struct SplitCodesOf<F, true> {
    using Type = MixedCodes;
};
template <class F>
using SplitCodes = typename SplitCodesOf<F>::Type;

template <class F>
struct Layout {
    static constexpr int align = F::bytes % 16 == 0 ? 16 : F::bytes % 4 == 0 ? 4 : F::bytes % 2 == 0 ? 2 : 1;
    static constexpr int subs = F::block / F::sub;
    static constexpr bool apart = scales_apart<F>;  // in planes[1], a float8 for each sub-block
    using Block = Bytes<align>;
};

// A table in shared memory, and where a lane's part of it begins, in bytes, if lanes have parts.
struct Table {
    const uint32_t* words;
    uint32_t mine;

    STRATA_METHOD const void* at(uint32_t offset) const { return reinterpret_cast<const uint8_t*>(words) + (offset + mine); }
};

// Unpack<F>: table_words (words of shared memory that every block fills first), fill, lane_bytes (Table::mine is lane()
// times that, modulo parts), and get(block, s, table, codes): sub-block s of the block.
template <class F>
struct Unpack;

template <class F>
STRATA_INLINE Table table_of(const uint32_t* words) {
    return {words, static_cast<uint32_t>(keep(Unpack<F>::lane_bytes * (lane() % Unpack<F>::parts)))};
}

struct NoTable {
    static constexpr int table_words = 0, lane_bytes = 0, parts = 32;
    STRATA_INLINE void fill(uint32_t*, int, int) {}
};

// 16 bytes of nibbles: the low ones are values 0 .. 15, the high ones 16 .. 31.
template <class B>
STRATA_INLINE void nibble_words(const B& b, uint32_t at, uint32_t* w) {
    uint32_t x[4];
    words_at<4>(b, at, x);
    STRATA_UNROLL
    for (int j = 0; j < 4; ++j) {
        w[j] = x[j] & 0x0f0f0f0fu;
        w[j + 4] = x[j] >> 4 & 0x0f0f0f0fu;
    }
}

template <>
struct Unpack<Q4_0> : NoTable {
    STRATA_INLINE void get(const Layout<Q4_0>::Block& b, int, const Table&, Codes<32>& c) {
        nibble_words(b, 2, c.w);
        c.scale = float_at(b, 0), c.bias = 8;
    }
};

template <>
struct Unpack<Q4_1> : NoTable {
    STRATA_INLINE void get(const Layout<Q4_1>::Block& b, int, const Table&, Codes<32>& c) {
        nibble_words(b, 4, c.w);
        c.scale = float_at(b, 0), c.minimum = -float_at(b, 2), c.bias = 0;
    }
};

STRATA_INLINE void add_fifth(uint32_t bits, uint32_t* w) {
    STRATA_UNROLL
    for (int j = 0; j < 8; ++j) w[j] |= spread_bits(bits >> 4 * j & 15) << 4;
}

template <>
struct Unpack<Q5_0> : NoTable {
    STRATA_INLINE void get(const Layout<Q5_0>::Block& b, int, const Table&, Codes<32>& c) {
        nibble_words(b, 6, c.w);
        uint32_t fifth;
        words_at<1>(b, 2, &fifth);
        add_fifth(fifth, c.w);
        c.scale = float_at(b, 0), c.bias = 16;
    }
};

template <>
struct Unpack<Q5_1> : NoTable {
    STRATA_INLINE void get(const Layout<Q5_1>::Block& b, int, const Table&, Codes<32>& c) {
        nibble_words(b, 8, c.w);
        uint32_t fifth;
        words_at<1>(b, 4, &fifth);
        add_fifth(fifth, c.w);
        c.scale = float_at(b, 0), c.minimum = -float_at(b, 2), c.bias = 0;
    }
};

template <>
struct Unpack<Q8_0> : NoTable {
    STRATA_INLINE void get(const Layout<Q8_0>::Block& b, int, const Table&, Codes<32>& c) {
        words_at<8>(b, 2, c.w);
        c.scale = float_at(b, 0), c.bias = 0;
    }
};

template <>
struct Unpack<Q2_0> : NoTable {
    STRATA_INLINE void get(const Layout<Q2_0>::Block& b, int s, const Table&, Codes<32>& c) {
        uint32_t x[2];
        words_at<2>(b, 2 + 8 * s, x);
        STRATA_UNROLL
        for (int j = 0; j < 8; ++j) c.w[j] = spread_pairs(x[j / 4] >> 8 * (j % 4) & 255);
        c.scale = float_at(b, 0), c.bias = 1;
    }
};

template <>
struct Unpack<TQ2_0> : NoTable {
    STRATA_INLINE void get(const Layout<TQ2_0>::Block& b, int s, const Table&, Codes<32>& c) {
        words_at<8>(b, s / 4 * 32, c.w);
        STRATA_UNROLL
        for (int j = 0; j < 8; ++j) c.w[j] = c.w[j] >> 2 * (s % 4) & 0x03030303u;
        c.scale = float_at(b, 64), c.bias = 1;
    }
};

// Digit `power` = 3^n of each of four bytes.
STRATA_INLINE uint32_t digits_of(uint32_t x, uint32_t power) {
    const uint32_t even = (x & 0x00ff00ffu) * power & 0x00ff00ffu, odd = (x >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu;
    return (even * 3 >> 8 & 0x00ff00ffu) | (odd * 3 & 0xff00ff00u);
}

template <>
struct Unpack<TQ1_0> : NoTable {
    STRATA_INLINE uint32_t power_of(int n) { return n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81; }
    STRATA_INLINE void get(const Layout<TQ1_0>::Block& b, int s, const Table&, Codes<32>& c) {
        c.scale = float_at(b, 52), c.bias = 1;
        words_at<8>(b, s < 5 ? 0 : 32, c.w);  // bytes 32 .. 47 hold five digits, 48 .. 51 four
        if (s < 5) {
            STRATA_UNROLL
            for (int j = 0; j < 8; ++j) c.w[j] = digits_of(c.w[j], power_of(s));
            return;
        }
        const uint32_t last = c.w[4];
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) {
            const uint32_t x = c.w[j];
            c.w[j] = digits_of(x, power_of(2 * (s - 5)));
            c.w[j + 4] = s < 7 ? digits_of(x, power_of(2 * (s - 5) + 1)) : digits_of(last, power_of(j));
        }
    }
};

}  // namespace strata::STRATA_ISA
