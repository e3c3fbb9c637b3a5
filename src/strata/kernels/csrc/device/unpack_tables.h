// Formats whose codes are places in a table of 16 values (unpack.h).
#pragma once

#include "unpack.h"

#include "../blocks_legacy.h"

namespace strata::STRATA_ISA {

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

// 16 bytes of nibbles as MixedCodes has them: what `low`, for nibbles below 8, and `high` get from the halves of the
// table. No byte of it is negative, so that a nibble of the other half gives the sign of one, 0.
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
    static constexpr int table_words = 128, lane_bytes = 16, parts = 32;
    STRATA_INLINE void fill(uint32_t* table, int thread, int) {
        fill_16({{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}}, table, thread);
    }
    // Without signs: those of the first half are subtracted.
    STRATA_INLINE void fill_mixed(uint32_t* table, int thread) {
        fill_16({{0x4153687fu, 0x0a162331u, 0x26190d01u, 0x71594535u}}, table, thread);
    }
};

struct E2m1Table  {
    static constexpr int table_words = 128, lane_bytes = 16, parts = 32;
    STRATA_INLINE void fill(uint32_t* table, int thread, int) {
        fill_16({{0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}}, table, thread);
    }
    // Without signs: those of the second half are subtracted.
    STRATA_INLINE void fill_mixed(uint32_t* table, int thread) {
        fill_16({{0x03020100u, 0x0c080604u, 0x03020100u, 0x0c080604u}}, table, thread);
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

}  // namespace strata::STRATA_ISA
