// One lane unpacks one sub-block of a block that lies in shared memory: what blocks.h decodes, sub-block by sub-block and
// four codes in a word. The sub-block's integer sum is sum(w q) - bias sum(q).
#pragma once

#include "bytes.h"

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

// Whether Unpack<F>::mixed gives a sub-block's values in two parts, of which one is 0 and is not looked up, and those of its
// halves in turns: 0, 16, 1, 17, .. That costs half of what `get` does, and x has to be mixed likewise.
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

// Unpack<F>: table_words (words of shared memory that every block fills first), fill, lane_bytes (Table::mine is lane() times
// that), and get(block, s, table, codes): sub-block s of the block.
template <class F>
struct Unpack;

template <class F>
STRATA_INLINE Table table_of(const uint32_t* words) {
    return {words, static_cast<uint32_t>(keep(Unpack<F>::lane_bytes * lane()))};
}

struct NoTable {
    static constexpr int table_words = 0, lane_bytes = 0;
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

// A table of 16 values lies in shared memory, once for each lane: what is read from there stays in registers, whereas
// constants, or what is the same in all lanes, would be moved into registers before each use.
STRATA_INLINE Table16 table_at(const Table& table) {
    const Words4 four = load16(table.at(0));
    return {{four.w[0], four.w[1], four.w[2], four.w[3]}};
}

// The same through a table of 16 values.
template <class B>
STRATA_INLINE void table_words_of(const B& b, uint32_t at, const Table& table, uint32_t* w) {
    uint32_t x[4];
    words_at<4>(b, at, x);
    const Table16 values = table_at(table);
    STRATA_UNROLL
    for (int j = 0; j < 4; ++j) look_up(values, x[j], w[j], w[j + 4]);
}

// 16 bytes of nibbles as MixedCodes has them: what `low`, for nibbles below 8, and `high` get from the halves of the table. No
// byte of it is negative, so that a nibble of the other half gives the sign of one, 0.
template <class B>
STRATA_INLINE void mixed_words_of(const B& b, uint32_t at, const Table& table, uint32_t (&low)[8], uint32_t (&high)[8]) {
    uint32_t x[4];
    words_at<4>(b, at, x);
    const Table16 values = table_at(table);
    STRATA_UNROLL
    for (int j = 0; j < 4; ++j) {
        STRATA_UNROLL
        for (int half = 0; half < 2; ++half) {
            const uint32_t four = half ? x[j] >> 16 : x[j];
            low[2 * j + half] = pick_or_sign(values.word[0], values.word[1], four);
            high[2 * j + half] = pick_or_sign(values.word[2], values.word[3], four ^ 0x88888888u);
        }
    }
}

STRATA_INLINE void fill_16(const Table16& values, uint32_t* table, int thread) {
    if (thread >= 32) return;
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) table[4 * thread + i] = values.word[i];
}

struct NonLinearTable  {
    static constexpr int table_words = 128, lane_bytes = 16;
    STRATA_INLINE void fill(uint32_t* table, int thread, int) {
        fill_16({{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}}, table, thread);
    }
    // Without signs: those of the first half are subtracted.
    STRATA_INLINE void fill_mixed(uint32_t* table, int thread) {
        fill_16({{0x4153687fu, 0x0a162331u, 0x26190d01u, 0x71594535u}}, table, thread);
    }
};

struct E2m1Table  {
    static constexpr int table_words = 128, lane_bytes = 16;
    STRATA_INLINE void fill(uint32_t* table, int thread, int) {
        fill_16({{0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}}, table, thread);
    }
    // Without signs: those of the second half are subtracted.
    STRATA_INLINE void fill_mixed(uint32_t* table, int thread) {
        fill_16({{0x03020100u, 0x0c080604u, 0x03020100u, 0x0c080604u}}, table, thread);
    }
};

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
struct Unpack<IQ4_NL> : NonLinearTable {
    STRATA_INLINE void get(const Layout<IQ4_NL>::Block& b, int, const Table& table, Codes<32>& c) {
        table_words_of(b, 2, table, c.w);
        c.scale = float_at(b, 0), c.bias = 0;
    }
    STRATA_INLINE void mixed(const Layout<IQ4_NL>::Block& b, int, const Table& table, MixedCodes& c) {
        mixed_words_of(b, 2, table, c.less, c.w);
        c.scale = float_at(b, 0);
    }
};

template <>
struct Unpack<IQ4_XS> : NonLinearTable {
    STRATA_INLINE void get(const Layout<IQ4_XS>::Block& b, int s, const Table& table, Codes<32>& c) {
        table_words_of(b, 8 + 16 * s, table, c.w);
        c.scale = scale(b, s), c.bias = 0;
    }
    STRATA_INLINE void mixed(const Layout<IQ4_XS>::Block& b, int s, const Table& table, MixedCodes& c) {
        mixed_words_of(b, 8 + 16 * s, table, c.less, c.w);
        c.scale = scale(b, s);
    }
    STRATA_INLINE float scale(const Layout<IQ4_XS>::Block& b, int s) {
        const uint32_t low = byte_at(b, 4 + s / 2) >> 4 * (s % 2) & 15, high = half_at(b, 2) >> 2 * s & 3;
        return float_at(b, 0) * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    }
};

template <>
struct Unpack<MXFP4> : E2m1Table {
    STRATA_INLINE void get(const Layout<MXFP4>::Block& b, int, const Table& table, Codes<32>& c) {
        table_words_of(b, 1, table, c.w);
        c.scale = e8m0_to_half_float(byte_at(b, 0)), c.bias = 0;
    }
    STRATA_INLINE void mixed(const Layout<MXFP4>::Block& b, int, const Table& table, MixedCodes& c) {
        mixed_words_of(b, 1, table, c.w, c.less);
        c.scale = e8m0_to_half_float(byte_at(b, 0));
    }
};

template <>
struct Unpack<NVFP4> : E2m1Table {
    STRATA_INLINE void get(const Layout<NVFP4>::Block& b, int s, const Table& table, Codes<16>& c) {
        uint32_t x[2];
        words_at<2>(b, 4 + 8 * s, x);
        STRATA_UNROLL
        for (int j = 0; j < 2; ++j) look_up(table_at(table), x[j], c.w[j], c.w[j + 2]);
        c.scale = 0.5f * ue4m3_to_float(byte_at(b, s)), c.bias = 0;
    }
};

// Pairs of values in a byte, low nibble first. The scale is set by who knows the plane of scales.
template <>
struct Unpack<NVFP4_PAIRS> : E2m1Table {
    STRATA_INLINE void get(const Layout<NVFP4_PAIRS>::Block& b, int s, const Table& table, Codes<16>& c) {
        uint32_t x[2];
        words_at<2>(b, 8 * s, x);
        STRATA_UNROLL
        for (int j = 0; j < 2; ++j) {
            uint32_t low, high;
            look_up(table_at(table), x[j], low, high);
            c.w[2 * j] = pick_bytes(low, high, 0x5140);
            c.w[2 * j + 1] = pick_bytes(low, high, 0x7362);
        }
        c.scale = 0.0f, c.bias = 0;
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
