// Quantised rows of x as the records that products read (prompt_layout.h): all rows in order, or those of experts'
// tiles.
#pragma once

#include "matrix.h"
#include "prompt_layout.h"

namespace strata::STRATA_ISA {

constexpr int pack_threads = 256;

// Quantised rows, and what each row of a tile is: row pairs[first + i] / top_k, or pairs[first + i] where top_k is 0,
// or first + i without pairs.
struct PackedRows {
    const uint8_t* codes;
    const float* d;
    const float* m;
    const int32_t* pairs;
    int32_t top_k;
    int64_t stages;
};

STRATA_INLINE int64_t packed_row(const PackedRows& from, const RowsTile& tile, int row) {
    const int at = tile.first + (row < tile.count ? row : tile.count - 1);
    const int32_t found = from.pairs ? from.pairs[at] : at;
    return from.top_k ? static_cast<int32_t>(static_cast<uint32_t>(found) / static_cast<uint32_t>(from.top_k)) : found;
}

// 64 rows from row `first` of a tile on, stages from `stage` on in steps of `step` -> records.
template <int sub>
STRATA_INLINE void pack_rows(const PackedRows& from, const RowsTile& tile, int first, int64_t stage, int64_t step,
                             uint8_t* to) {
    using R = PromptRecord<sub, true>;
    constexpr int pieces = R::steps / 4, all = record_rows * pieces;  // of four scales; of d, and as many of m
    const int code_row = thread_x() / 8, scale_row = thread_x() % all / pieces, part = thread_x() % pieces;
    const uint8_t* codes[2];
    for (int i = 0; i < 2; ++i) {
        const int64_t row = packed_row(from, tile, first + code_row + 32 * i);
        codes[i] = from.codes + row * from.stages * stage_codes + thread_x() % 8 * 16;
    }
    const bool is_m = thread_x() / all == 1;
    const int64_t row_of_scales = packed_row(from, tile, first + scale_row);
    const float* const scales = (is_m ? from.m : from.d) + row_of_scales * from.stages * R::steps;
    uint8_t* const scales_to = to + (is_m ? R::minimum : R::scale) + part * 4 * R::line + row_scale_place(scale_row) * 4;
    uint8_t* const codes_to = to + swizzled(code_row, thread_x() % 8 * 16);
    STRATA_ROLL
    for (; stage < from.stages; stage += step) {
        STRATA_UNROLL
        for (int i = 0; i < 2; ++i) {
            uint8_t* const at = codes_to + stage * R::bytes + 32 * i * stage_codes;
            *reinterpret_cast<Words4*>(at) = load16(codes[i] + stage * stage_codes);
        }
        if (thread_x() >= 2 * all) continue;
        const Words4 four = load16(scales + stage * R::steps + part * 4);
        STRATA_UNROLL
        for (int i = 0; i < 4; ++i) *reinterpret_cast<uint32_t*>(scales_to + stage * R::bytes + i * R::line) = four.w[i];
    }
}

// Grid: x stages (they loop), y tiles of 64 rows. Of experts: `tiles`, each with up to 64 `groups` rows, of which there
// are tile_starts[experts]. `sub`: 32 or 16.
STRATA_KERNEL_OF(pack_threads, prompt_pack,
                 (const uint8_t* codes, const float* d, const float* m, const RowsTile* tiles, const int32_t* tile_starts,
                  const int32_t* pairs, uint8_t* to, int64_t experts, int64_t groups, int64_t rows, int64_t top_k,
                  int64_t cols, int64_t sub)) {
    const PackedRows from = {codes, d, m, tiles ? pairs : nullptr, static_cast<int32_t>(top_k), stages_of(cols)};
    const int number = block_y() / static_cast<int>(groups), first = block_y() % static_cast<int>(groups) * record_rows;
    if (tiles && number >= tile_starts[experts]) return;
    const int32_t whole = static_cast<int32_t>(rows), most = static_cast<int32_t>(groups) * record_rows;
    RowsTile tile = {0, number * most, whole - number * most, number * static_cast<int32_t>(groups)};
    if (tiles) tile = tiles[number];
    if (first >= tile.count) return;
    const int64_t record = (tile.packed + first / record_rows) * from.stages;
    if (sub == 32) pack_rows<32>(from, tile, first, block_x(), grid_x(), to + record * PromptRecord<32, true>::bytes);
    else pack_rows<16>(from, tile, first, block_x(), grid_x(), to + record * PromptRecord<16, true>::bytes);
}

}  // namespace strata::STRATA_ISA
