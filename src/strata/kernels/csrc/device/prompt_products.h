// Products of weights in codes with many rows of x, on matrix units, bit for bit as kernels/linear/naive.py: the sums of a
// sub-block are exact whoever adds them, and the few float operations keep the lane rule's order (prompt_layout.h).
// One unit for each STRATA_SUB (values that share a scale: 32 or 16), STRATA_MINIMA (0 or 1) and STRATA_GROUPS (1 or 3).
//
// A group of 32 lanes computes 32 rows of x by 32 rows of the weight, 4 G groups of a block 64 G by 64; every thread has 32
// results. One more group brings operands. With G = 3 a scheduler has three groups, of which two add terms while one
// waits for the matrix unit. Dynamic shared bytes: kernels/linear/prompt.py, shared_bytes.
#pragma once

#include "matrix.h"
#include "prompt_loader.h"
#include "prompt_sums.h"

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

// y [results, count] of the tile's rows; `first` is the first row of the weight's tile.
STRATA_INLINE void store_results(const PromptWork& work, const RowsTile& tile, const float (&sums)[32], float factor,
                                 int64_t first, int64_t count, float* y) {
    const int row = first_row() + lane() / 4, column = first_line() + lane() % 4 * 2, left = static_cast<int>(count - first) - column;
    int32_t result[4];
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) result[i] = row + 8 * i < tile.count ? work.result_of(tile, row + 8 * i) : -1;
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) {
        if (result[i] < 0) continue;
        float* to = y + result[i] * count + first + column;
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) {
            const float* const pair = sums + i / 2 * 16 + j * 4 + i % 2 * 2;
            if (count % 2 == 0 && 8 * j < left) {
                *reinterpret_cast<Words2*>(to + 8 * j) = {{bits_of_float(pair[0] * factor), bits_of_float(pair[1] * factor)}};
            } else {
                if (8 * j < left) to[8 * j] = pair[0] * factor;
                if (8 * j + 1 < left) to[8 * j + 1] = pair[1] * factor;
            }
        }
    }
}

// All places of a unit, in the order of the tree: the result is in sums.odd.
template <int sub, bool minima, int groups>
STRATA_INLINE void add_unit(PromptPlaces<sub, minima, groups>& places, int count, TreeSums<32>& sums,
                            WaitingSums<32>& waiting) {
    places.at = 0;
    const int each = count / 32, more = count % 32;  // sub-blocks of a lane; lanes that have one more
    STRATA_ROLL
    for (int pair = 0; pair < 16; ++pair) {
        const int first = turn_of(2 * pair);
        if (first >= count) continue;
        places.template add<true>(sums.even);
        STRATA_ROLL
        for (int i = each + (first < more ? 1 : 0); i > 1; --i) places.template add<false>(sums.even);
        if (first + 16 < count) {
            places.template add<true>(sums.odd);
            STRATA_ROLL
            for (int i = each + (first + 16 < more ? 1 : 0); i > 1; --i) places.template add<false>(sums.odd);
            join(sums.odd, sums.even);
        } else {
            keep(sums.even, sums.odd);
        }
        if (climb_low(sums, pair, count)) climb_high(sums, pair, count, waiting);
    }
}

template <int sub, bool minima, int groups>
STRATA_INLINE void run_prompt(const PromptWork& work, const PromptOperands& from, float* y, int64_t count,
                              int64_t scale_bits, unsigned char* shared) {
    using Stage = PromptStage<sub, minima, groups>;
    float* const deep = reinterpret_cast<float*>(shared + Stage::arrivals + Stage::depth * Stage::bytes);
    WaitingSums<32> waiting = {deep + thread_x() * 4, 32 * Stage::warps, {}};
    const int stride = grid_x();
    PromptPlaces<sub, minima, groups> places = {{work, from, shared, stride, static_cast<int>(stages_of(from.cols))}};
    places.loader.begin();
    if (warp() == Stage::warps) {
        places.loader.feed();
        return;
    }
    for (int unit = work.find(block_x(), stride); unit < work.units; unit = work.find(unit + stride, stride)) {
        const RowsTile tile = work.tile_of(unit);
        if (tile.count <= first_row()) {
            places.pass();
            continue;
        }
        TreeSums<32> sums;
        add_unit(places, static_cast<int>(from.cols / sub), sums, waiting);
        const int64_t bits = work.tiles ? work.table[tile.expert].scale_bits[work.kind] : scale_bits;
        const float factor = float_of_bits(static_cast<uint32_t>(bits));
        store_results(work, tile, sums.odd, factor, work.line_of(unit) * record_rows, count, y);
    }
}

STRATA_KERNEL_BESIDE(128 * STRATA_GROUPS + 32, STRATA_GROUPS == 1 ? 3 : 1, prompt_products,
                 (const uint8_t* x, const uint8_t* w, const RowsTile* tiles, const int32_t* tile_starts, const int32_t* pairs,
                  const ExpertEntry* table, int64_t first_expert, int64_t experts, int64_t rows, int64_t kind, int64_t format,
                  float* y, int64_t count, int64_t cols, int64_t padded, int64_t scale_bits)) {
    DYNAMIC_SHARED(unsigned char, shared);
    const PromptWork work = prompt_work(tiles, tile_starts, pairs, table, first_expert, experts,
                                        (count + record_rows - 1) / record_rows, rows, kind, format, 64 * STRATA_GROUPS);
    const PromptOperands from = {x, w, cols, padded, first_expert};
    run_prompt<STRATA_SUB, STRATA_MINIMA != 0, STRATA_GROUPS>(work, from, y, count, scale_bits, shared);
}

}  // namespace strata::STRATA_ISA
