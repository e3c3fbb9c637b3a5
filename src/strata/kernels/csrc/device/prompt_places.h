// What a group of 32 lanes adds, place by place, to its results of a product of many rows: 32 rows of x by 32 rows of
// the weight, a thread 32 of them (prompt_products.h).
#pragma once

#include "matrix.h"
#include "prompt_loader.h"
#include "registers.h"

namespace strata::STRATA_ISA {

// Scales or minima of this lane's rows among 32 of the weight.
STRATA_INLINE void load_lines(const uint8_t* from, float (&to)[8]) {
    STRATA_UNROLL
    for (int i = 0; i < 2; ++i) {
        const Words4 four = load16(from + 64 * i);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) to[4 * i + j] = float_of_bits(four.w[j]);
    }
}

// d or m of this lane's four rows of x.
STRATA_INLINE void load_row_scales(const uint8_t* from, float (&to)[4]) {
    const Words4 four = load16(from);
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) to[i] = float_of_bits(four.w[i]);
}

STRATA_INLINE int first_row() { return warp() / 2 * 32; }
STRATA_INLINE int first_line() { return warp() % 2 * 32; }

// Which of a tile's rows and columns a thread's results are, two neighbouring columns in a pair.
struct PromptResults {
    static constexpr int rows = 4, pairs = 4;
    STRATA_INLINE int row(int i) { return first_row() + lane() / 4 + 8 * i; }
    STRATA_INLINE int column() { return first_line() + lane() % 4 * 2; }
    STRATA_INLINE int pair(int i, int j) { return i / 2 * 16 + j * 4 + i % 2 * 2; }
};

// Those that bring operands leave registers to those that compute, which else would spill.
template <int groups>
STRATA_INLINE void begin_to_compute() { take_registers<groups == 1 ? 208 : 160>(); }
template <int groups>
STRATA_INLINE void begin_to_bring() { give_registers<groups == 1 ? 40 : 32>(); }

// The stages of a block's units, one after the other, and the place that comes next.
template <int sub, bool minima, int groups>
struct PromptPlaces {
    using Stage = PromptStage<sub, minima, groups>;
    using R = typename Stage::Lines;
    PromptLoader<sub, minima, groups> loader;
    const uint8_t* stage = nullptr;
    int at = 0;  // of the stage
    // Of this group's codes, and its lanes' scales, in a stage.
    int x_record = warp() / 4 * R::bytes, row = first_row() % record_rows;
    int x_place = sub == 32 ? rows_place(row) : half_place(row);
    int w_place = sub == 32 ? columns_place(first_line()) : half_place(first_line());
    int d_place = x_record + R::scale + (row + lane() / 4 * 4) * 4;
    int line_place = Stage::w + R::scale + (first_line() + lane() % 4 * 4) * 4;

    // Adds the terms of the next place, docs/numerics.md 1.3 and 1.4; `first`: the sums begin with them.
    template <bool first>
    STRATA_METHOD void add(float (&sums)[32]) {
        if (at == 0) stage = loader.next();
        uint32_t x[2][4], w[2][4];  // codes of this group's rows of x and of the weight
        if constexpr (sub == 32) {
            STRATA_UNROLL
            for (int i = 0; i < 2; ++i) {
                load_rows(stage + x_record + i * 16 * 128, x_place, at * sub, x[i]);
                load_columns(stage + Stage::w + i * 16 * 128, w_place, at * sub, w[i]);
            }
        } else {
            load_half(stage + x_record, x_place, at * sub, x[0]);
            load_half(stage + Stage::w, w_place, at * sub, w[0]);
        }
        float d[4], m[4] = {}, scale[8], minimum[8] = {};
        const uint8_t* const scales = stage + at * R::line;
        load_row_scales(scales + d_place, d);
        load_lines(scales + line_place, scale);
        if (minima) load_row_scales(scales + d_place + R::minimum - R::scale, m);
        if (minima) load_lines(scales + line_place + R::minimum - R::scale, minimum);
        STRATA_UNROLL
        for (int i = 0; i < 2; ++i) {
            int32_t whole[4][4];
            STRATA_UNROLL
            for (int j = 0; j < 4; ++j) {
                if constexpr (sub == 32) mma_s8(whole[j], x[i], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1], 0);
                else mma_s8_half(whole[j], x[0][2 * i], x[0][2 * i + 1], w[0][j], 0);
            }
            STRATA_UNROLL
            for (int j = 0; j < 4; ++j)
                STRATA_UNROLL
                for (int e = 0; e < 4; ++e) {
                    const int row = 2 * i + e / 2, line = 2 * j + e % 2;
                    float& sum = sums[16 * i + 4 * j + e];
                    sum = fma(static_cast<float>(whole[j][e]), scale[line] * d[row], first ? 0.0f : sum);
                    if (minima) sum = fma(m[row], minimum[line] * d[row], sum);
                }
        }
        at = at + 1 == R::steps ? 0 : at + 1;
    }

    // A unit none of whose rows this group has.
    STRATA_METHOD void pass() {
        STRATA_ROLL
        for (int i = 0; i < loader.stages; ++i) loader.next();
    }
};

}  // namespace strata::STRATA_ISA
