// Operands of a product of many rows on their way into shared memory, stage by stage.
#pragma once

#include "matrix.h"
#include "prompt_tiles.h"

namespace strata::STRATA_ISA {

// Where the operands lie (prompt_layout.h). Weights: one panel of `padded` rows for each expert from the first on.
struct PromptOperands {
    const uint8_t* x;
    const float* d;
    const float* m;
    const uint8_t* w;
    const float* scale;
    const float* minimum;
    int64_t cols, padded, first_expert;
};

// A stage in shared memory, for a block of so many threads: 64 rows of x, threads / 2 rows of the weight.
template <int sub, bool minima, int threads>
struct PromptStage {
    static constexpr int steps = stage_codes / sub, rows = threads / 2;
    static constexpr int x = 0, w = x + tile_rows_of_x * stage_codes, d = w + rows * stage_codes;
    static constexpr int x_scales = tile_rows_of_x * steps * 4, w_scales = rows * steps * 4;
    static constexpr int m = d + x_scales, scale = m + (minima ? x_scales : 0), minimum = scale + w_scales;
    static constexpr int bytes = minimum + (minima ? w_scales : 0);
};

constexpr int prompt_depth = 3;

template <int sub, bool minima, int threads>
struct PromptLoader {
    using Stage = PromptStage<sub, minima, threads>;
    const PromptWork& work;
    const PromptOperands& from;
    UnitRows* rows;  // [units_under_way]
    uint8_t* ring;   // [prompt_depth] stages
    int64_t stride, stages, unit, next = 0;
    int64_t stage = 0;
    int number = 0, slot = 0;  // of units so far; of the ring
    RowsTile next_tile = {};
    int32_t next_result = 0;

    // The rows of the first unit; a barrier follows.
    STRATA_METHOD void begin() {
        if (unit >= work.units()) return;
        next_tile = work.tile_of(unit);
        if (thread_x() < tile_rows_of_x) put_rows(rows[0], work.result_of(next_tile, thread_x()));
    }

    STRATA_METHOD void put_rows(UnitRows& to, int32_t result) {
        to.result[thread_x()] = result;
        to.source[thread_x()] = work.row_of_x(result);
        if (thread_x() == 0) to.tile = next_tile;
    }

    // Called once between two barriers, by the whole block.
    STRATA_METHOD void ask() {
        if (unit < work.units()) {
            UnitRows& here = rows[number % units_under_way];
            if (stage == 0) {
                next = work.find(unit + stride, stride);
                if (next < work.units()) next_tile = work.tile_of(next);
            }
            copy_rows(here);
            copy_weights(here.tile);
            look_ahead();
            if (++stage == stages) stage = 0, unit = next, ++number;
        }
        commit_copies();
        slot = slot + 1 == prompt_depth ? 0 : slot + 1;
    }

    // The next unit's rows, in steps, so that nobody waits for them: its tile, its pairs, then into shared memory.
    STRATA_METHOD void look_ahead() {
        if (next >= work.units() || thread_x() >= tile_rows_of_x) return;
        if (stage == 1 || stages == 1) next_result = work.result_of(next_tile, thread_x());
        if (stage == 2 || (stages < 3 && stage + 1 == stages)) put_rows(rows[(number + 1) % units_under_way], next_result);
    }

    STRATA_METHOD void copy_rows(const UnitRows& here) {
        uint8_t* to = ring + slot * Stage::bytes;
        STRATA_UNROLL
        for (int i = 0; i < tile_rows_of_x * 8 / threads; ++i) {
            const int at = thread_x() + i * threads, row = at / 8, piece = at % 8;
            const int64_t line = here.source[row] * stages + stage;
            copy16(to + Stage::x + swizzled(row, piece * 16), from.x + line * stage_codes + piece * 16);
        }
        constexpr int pieces = Stage::x_scales / 16, each = Stage::steps / 4;
        STRATA_UNROLL
        for (int first = 0; first < pieces; first += threads) {
            const int at = first + thread_x();
            if (at >= pieces) continue;
            const int64_t place = (here.source[at / each] * stages + stage) * Stage::steps + at % each * 4;
            copy16(to + Stage::d + at * 16, from.d + place);
            if (minima) copy16(to + Stage::m + at * 16, from.m + place);
        }
    }

    STRATA_METHOD void copy_weights(const RowsTile& tile) {
        uint8_t* to = ring + slot * Stage::bytes;
        const int64_t panel = (tile.expert - (work.tiles ? from.first_expert : 0)) * from.padded;
        const int64_t first = panel + unit % work.across * Stage::rows;
        STRATA_UNROLL
        for (int i = 0; i < Stage::rows * 8 / threads; ++i) {
            const int at = thread_x() + i * threads, row = at / 8, piece = at % 8;
            copy16(to + Stage::w + swizzled(row, piece * 16),
                   from.w + ((first + row) * stages + stage) * stage_codes + piece * 16);
        }
        constexpr int pieces = Stage::w_scales / 16, of_group = Stage::steps * 8;  // 32 rows are a group
        STRATA_UNROLL
        for (int start = 0; start < pieces; start += threads) {
            const int at = start + thread_x();
            if (at >= pieces) continue;
            const int64_t group = first / 32 + at / of_group;
            const int64_t place = (group * stages + stage) * Stage::steps * 32 + at % of_group * 4;
            copy16(to + Stage::scale + at * 16, from.scale + place);
            if (minima) copy16(to + Stage::minimum + at * 16, from.minimum + place);
        }
    }
};

}  // namespace strata::STRATA_ISA
