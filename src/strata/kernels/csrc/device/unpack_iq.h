// The i-quants with code grids (unpack.h). The grid lies in shared memory, an entry in one or two words.
#pragma once

#include "unpack.h"

#include "../blocks_iq.h"

namespace strata::STRATA_ISA {

// The entries of a grid of `words_per_entry` words as words of shared memory; the threads of the block share the work.
template <int count, int wide, class Value>
STRATA_INLINE void fill_grid(const Value (&grid)[count][wide], int factor, uint32_t* table, int thread, int threads) {
    for (int i = thread; i < count * wide / 4; i += threads) {
        uint32_t word = 0;
        for (int k = 0; k < 4; ++k) {
            const int value = factor * grid[i / (wide / 4)][i % (wide / 4) * 4 + k];
            word |= (static_cast<uint32_t>(value) & 255) << 8 * k;
        }
        table[i] = word;
    }
}

// Eight values: two words of the grid with the signs of eight bits.
STRATA_INLINE void signed_entry(const Table& table, uint32_t index, uint32_t signs, uint32_t* w) {
    const Words2 both = load8(table.words + 2 * index);
    w[0] = with_signs(both.w[0], signs & 15);
    w[1] = with_signs(both.w[1], signs >> 4 & 15);
}

// Entries of one word, once for each bank of shared memory: lanes that look up different entries do not meet in a bank.
// Where a block has less shared memory, fewer times (kernels/shared_memory.py).
#ifndef STRATA_BANKS
#define STRATA_BANKS 32
#endif
constexpr uint32_t banks = STRATA_BANKS;

// Values of this grid are odd. With k = (w - 1) / 2 of a value w without its sign, and a mask of ones where it is
// negative, the signed value is 2 (k ^ mask) + 1: a sign costs one instruction, and the sum over q is 2 sum((k ^ mask)
// q) + sum(q).
template <>
struct Unpack<IQ3_S> {
    static constexpr int table_words = 512 * banks, lane_bytes = 4, parts = banks;
    STRATA_INLINE void fill(uint32_t* table, int thread, int threads) {
        for (int i = thread; i < 512; i += threads) {
            const uint32_t word = *reinterpret_cast<const uint32_t*>(grid_iq3_s[i]) >> 1 & 0x7f7f7f7fu;
            STRATA_UNROLL
            for (uint32_t k = 0; k < banks; ++k) table[i * banks + (k + thread) % banks] = word;
        }
    }
    // Where the bytes of a lane's sub-block s lie, from a block's beginning `at` in shared memory on; only `at`'s two
    // lowest bits count.
    struct Lane {
        int index, signs, ninth, small, scale;  // bytes; the first two of words
        int bits, shift;                        // where the words' bits begin, and those of the small scale

        STRATA_METHOD Lane(int at, int s)
            : index(((at + 2) & ~3) + 8 * s), signs(((at + 2) & ~3) + 72 + 4 * s), ninth(at + 66 + s), small(at + 106 + s / 2),
              scale(at), bits(((at + 2) & 3) * 8), shift(s % 2 * 4) {}

        // In registers; all lanes take part.
        STRATA_METHOD void stay() {
            index = keep(index), signs = keep(signs), ninth = keep(ninth), small = keep(small), scale = keep(scale);
            bits = keep(bits), shift = keep(shift);
        }
    };
    STRATA_INLINE void halves(const uint8_t* base, const Lane& lane, const Table& table, Codes<32>& c) {
        const uint32_t bits = static_cast<uint32_t>(lane.bits);
        const uint32_t first = load4(base + lane.index), second = load4(base + lane.index + 4), third = load4(base + lane.index + 8);
        const uint32_t index[2] = {shift_pair(first, second, bits), shift_pair(second, third, bits)};
        const uint32_t signs = shift_pair(load4(base + lane.signs), load4(base + lane.signs + 4), bits);
        const uint32_t ninth = base[lane.ninth], even = signs & 0x0f0f0f0fu, odd = signs >> 4 & 0x0f0f0f0fu;
        STRATA_UNROLL
        for (int half = 0; half < 2; ++half) {
            const uint32_t high = spread_bits(ninth >> 4 * half & 15);
            STRATA_UNROLL
            for (int j = 0; j < 4; ++j) {
                const uint32_t entry = load4(table.at(byte_pair(index[half], high, j) * (4 * banks)));
                c.w[4 * half + j] = entry ^ sign_mask(pick_bytes(j % 2 ? odd : even, 0, 0x4440 + 2 * half + j / 2));
            }
        }
        const uint32_t small = base[lane.small] >> lane.shift & 15u;
        c.scale = half_to_float(*reinterpret_cast<const uint16_t*>(base + lane.scale)) * float_of_small(1 + 2 * small);
        c.bias = 0;
    }
    STRATA_INLINE void halves(const Layout<IQ3_S>::Block& b, int s, const Table& table, Codes<32>& c) {
        halves(reinterpret_cast<const uint8_t*>(b.words), Lane(static_cast<int>(b.at), s), table, c);
    }
    STRATA_INLINE void get(const Layout<IQ3_S>::Block& b, int s, const Table& table, Codes<32>& c) {
        halves(b, s, table, c);
        STRATA_UNROLL
        for (int j = 0; j < 8; ++j) c.w[j] = (c.w[j] << 1 & 0xfefefefeu) | 0x01010101u;
    }
};

template <>
struct Unpack<IQ3_XXS> : NoTable {
    static constexpr int table_words = 256;
    STRATA_INLINE void fill(uint32_t* table, int thread, int threads) { fill_grid(grid_iq3_xxs, 1, table, thread, threads); }
    STRATA_INLINE void get(const Layout<IQ3_XXS>::Block& b, int s, const Table& table, Codes<32>& c) {
        uint32_t index[2], word;
        words_at<2>(b, 2 + 8 * s, index);
        words_at<1>(b, 66 + 4 * s, &word);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) {
            const uint32_t signs = signs_of_index(word >> 7 * j & 127), two = index[j / 2] >> 16 * (j % 2);
            c.w[2 * j] = with_signs(table.words[two & 255], signs & 15);
            c.w[2 * j + 1] = with_signs(table.words[two >> 8 & 255], signs >> 4);
        }
        c.scale = float_at(b, 0) * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
        c.bias = 0;
    }
};

template <>
struct Unpack<IQ2_XXS> : NoTable {
    static constexpr int table_words = 512;
    STRATA_INLINE void fill(uint32_t* table, int thread, int threads) { fill_grid(grid_iq2_xxs, 1, table, thread, threads); }
    STRATA_INLINE void get(const Layout<IQ2_XXS>::Block& b, int s, const Table& table, Codes<32>& c) {
        uint32_t x[2];
        words_at<2>(b, 2 + 8 * s, x);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j)
            signed_entry(table, x[0] >> 8 * j & 255, signs_of_index(x[1] >> 7 * j & 127), c.w + 2 * j);
        c.scale = float_at(b, 0) * (0.5f + static_cast<float>(x[1] >> 28)) * 0.25f;
        c.bias = 0;
    }
};

// d (0.5 + small) / 4, the small scale of sub-block s being a nibble.
template <class B>
STRATA_INLINE float iq2_scale(const B& b, uint32_t at, int s) {
    return float_at(b, 0) * (0.5f + static_cast<float>(byte_at(b, at + s / 2) >> 4 * (s % 2) & 15)) * 0.25f;
}

template <>
struct Unpack<IQ2_XS> : NoTable {
    static constexpr int table_words = 1024;
    STRATA_INLINE void fill(uint32_t* table, int thread, int threads) { fill_grid(grid_iq2_xs, 1, table, thread, threads); }
    STRATA_INLINE void get(const Layout<IQ2_XS>::Block& b, int s, const Table& table, Codes<16>& c) {
        STRATA_UNROLL
        for (int j = 0; j < 2; ++j) {
            const uint32_t x = half_at(b, 2 + 4 * s + 2 * j);
            signed_entry(table, x & 511, signs_of_index(x >> 9), c.w + 2 * j);
        }
        c.scale = iq2_scale(b, 66, s), c.bias = 0;
    }
};

template <>
struct Unpack<IQ2_S> : NoTable {
    static constexpr int table_words = 2048;
    STRATA_INLINE void fill(uint32_t* table, int thread, int threads) { fill_grid(grid_iq2_s, 1, table, thread, threads); }
    STRATA_INLINE void get(const Layout<IQ2_S>::Block& b, int s, const Table& table, Codes<16>& c) {
        const uint32_t index = half_at(b, 2 + 2 * s), signs = half_at(b, 34 + 2 * s);
        const uint32_t high = byte_at(b, 66 + s / 2) >> 4 * (s % 2);
        STRATA_UNROLL
        for (int j = 0; j < 2; ++j)
            signed_entry(table, (index >> 8 * j & 255) | (high >> 2 * j & 3) << 8, signs >> 8 * j & 255, c.w + 2 * j);
        c.scale = iq2_scale(b, 74, s), c.bias = 0;
    }
};

// The grid holds -1, 0, 1; codes are eight times the value, plus or minus one.
template <>
struct Unpack<IQ1_S> : NoTable {
    static constexpr int table_words = 4096;
    STRATA_INLINE void fill(uint32_t* table, int thread, int threads) { fill_grid(grid_iq1, 8, table, thread, threads); }
    STRATA_INLINE void get(const Layout<IQ1_S>::Block& b, int s, const Table& table, Codes<32>& c) {
        uint32_t index;
        words_at<1>(b, 2 + 4 * s, &index);
        const uint32_t head = half_at(b, 34 + 2 * s);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) {
            const Words2 both = load8(table.words + 2 * ((index >> 8 * j & 255) | (head >> 3 * j & 7) << 8));
            c.w[2 * j] = both.w[0], c.w[2 * j + 1] = both.w[1];
        }
        c.scale = float_at(b, 0) * static_cast<float>(2 * (head >> 12 & 7) + 1) * 0.125f;
        c.bias = head >> 15 ? 1 : -1;
    }
};

template <>
struct Unpack<IQ1_M> : NoTable {
    static constexpr int table_words = 4096;
    STRATA_INLINE void fill(uint32_t* table, int thread, int threads) { fill_grid(grid_iq1, 8, table, thread, threads); }
    STRATA_INLINE void get(const Layout<IQ1_M>::Block& b, int s, const Table& table, Codes<16>& c) {
        const uint32_t index = half_at(b, 2 * s), tails = byte_at(b, 32 + s);
        STRATA_UNROLL
        for (int j = 0; j < 2; ++j) {
            const uint32_t tail = tails >> 4 * j & 15;
            const Words2 both = load8(table.words + 2 * ((index >> 8 * j & 255) | (tail & 7) << 8));
            const uint32_t step = tail >> 3 ? 0xffffffffu : 0x01010101u;
            c.w[2 * j] = add_bytes(both.w[0], step), c.w[2 * j + 1] = add_bytes(both.w[1], step);
        }
        uint32_t half = 0;
        STRATA_UNROLL
        for (int k = 0; k < 4; ++k) half |= half_at(b, 48 + 2 * k) >> 12 << 4 * k;
        const uint32_t small = half_at(b, 48 + 2 * (s / 4)) >> 3 * (s % 4) & 7;
        c.scale = half_to_float(half) * static_cast<float>(2 * small + 1) * 0.125f;
        c.bias = 0;
    }
};

}  // namespace strata::STRATA_ISA
