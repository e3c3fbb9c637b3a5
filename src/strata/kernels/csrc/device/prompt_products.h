// Products of weights in codes with many rows of x, on matrix units, bit for bit as kernels/linear/naive.py: the sums
// of a sub-block are exact whoever adds them, and the few float operations keep the lane rule's order
// (prompt_layout.h). One unit for each STRATA_SUB (values that share a scale: 32 or 16), STRATA_MINIMA (0 or 1) and
// STRATA_GROUPS (1 or 3).
//
// The 4 G groups of 32 lanes of a block that compute have 64 G rows of x by 64 of the weight, every thread 32 results.
// Four more bring operands. With G = 3 a scheduler has three groups, of which two add terms while one waits for the
// matrix unit. Dynamic shared bytes: kernels/linear/prompt.py, shared_bytes.
#pragma once

#include "prompt_places.h"
#include "prompt_sums.h"

namespace strata::STRATA_ISA {

// y [results, count] of the tile's rows; `first` is the first row of the weight's tile.
STRATA_INLINE void store_results(const PromptWork& work, const RowsTile& tile, const float (&sums)[32], float factor,
                                 int64_t first, int64_t count, float* y) {
    using P = PromptResults;
    const int left = static_cast<int>(count - first) - P::column();
    int32_t result[P::rows];
    STRATA_UNROLL
    for (int i = 0; i < P::rows; ++i) result[i] = P::row(i) < tile.count ? work.result_of(tile, P::row(i)) : -1;
    STRATA_UNROLL
    for (int i = 0; i < P::rows; ++i) {
        if (result[i] < 0) continue;
        float* to = y + result[i] * count + first + P::column();
        STRATA_UNROLL
        for (int j = 0; j < P::pairs; ++j) {
            const float* const pair = sums + P::pair(i, j);
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
    if (warp() >= Stage::warps) {
        begin_to_bring<groups>();
        places.loader.feed();
        return;
    }
    begin_to_compute<groups>();
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

STRATA_KERNEL_BESIDE(128 * STRATA_GROUPS + 128, STRATA_GROUPS == 1 ? 2 : 1, prompt_products,
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
