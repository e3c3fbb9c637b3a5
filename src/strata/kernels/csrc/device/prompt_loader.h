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

constexpr int prompt_depth = 2;  // stages in shared memory

template <int sub, bool minima, int threads>
struct PromptLoader {
    using Stage = PromptStage<sub, minima, threads>;
    static constexpr int step = threads / 8;  // rows from one piece of a thread to its next
    static constexpr int x_pieces = tile_rows_of_x / step, w_pieces = Stage::rows / step;
    static constexpr int d_all = Stage::x_scales / 16, d_pieces = (d_all + threads - 1) / threads;
    static constexpr int s_all = Stage::w_scales / 16, s_pieces = (s_all + threads - 1) / threads;
    static constexpr int of_group = Stage::steps * 8;  // pieces of the scales of 32 rows

    const PromptWork& work;
    const PromptOperands& from;
    UnitRows* rows;  // [units_under_way]
    uint8_t* ring;   // [prompt_depth] stages
    int64_t stride, stages, unit, next = 0;
    int stage = 0, number = 0, slot = 0;  // of the unit; of units so far; of the ring
    RowsTile next_tile = {};
    int32_t next_result = 0;
    // Where this thread's pieces of the next stage lie.
    const uint8_t* x_at[x_pieces] = {};
    const uint8_t* w_at = nullptr;
    int64_t d_at[d_pieces] = {}, s_at[s_pieces] = {};

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
            if (stage == 0) {
                find_pieces(rows[number % units_under_way]);
                next = work.find(unit + stride, stride);
                if (next < work.units()) next_tile = work.tile_of(next);
            }
            copy_stage(ring + slot * Stage::bytes);
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

    STRATA_METHOD void find_pieces(const UnitRows& here) {
        const int64_t wide = stages * stage_codes, places = stages * Stage::steps;
        const int row = thread_x() / 8, piece = thread_x() % 8 * 16;
        STRATA_UNROLL
        for (int i = 0; i < x_pieces; ++i) x_at[i] = from.x + here.source[row + i * step] * wide + piece;
        const int64_t panel = (here.tile.expert - (work.tiles ? from.first_expert : 0)) * from.padded;
        const int64_t first = panel + work.line_of(unit) * Stage::rows;
        w_at = from.w + (first + row) * wide + piece;
        STRATA_UNROLL
        for (int i = 0; i < d_pieces; ++i) {
            const int at = thread_x() + i * threads, each = Stage::steps / 4;
            d_at[i] = at < d_all ? here.source[at / each] * places + at % each * 4 : 0;
        }
        STRATA_UNROLL
        for (int i = 0; i < s_pieces; ++i) {
            const int at = thread_x() + i * threads;
            s_at[i] = (first / 32 + at / of_group) * places * 32 + at % of_group * 4;
        }
    }

    STRATA_METHOD void copy_stage(uint8_t* to) {
        const int at = swizzled(thread_x() / 8, thread_x() % 8 * 16);  // rows `step` apart are swizzled alike
        const int64_t next_rows = step * stages * stage_codes;
        STRATA_UNROLL
        for (int i = 0; i < x_pieces; ++i) {
            copy16(to + Stage::x + at + i * step * stage_codes, x_at[i]);
            x_at[i] += stage_codes;
        }
        STRATA_UNROLL
        for (int i = 0; i < w_pieces; ++i) copy16(to + Stage::w + at + i * step * stage_codes, w_at + i * next_rows);
        w_at += stage_codes;
        STRATA_UNROLL
        for (int i = 0; i < d_pieces; ++i) {
            const int piece = thread_x() + i * threads;
            if (piece < d_all) copy16(to + Stage::d + piece * 16, from.d + d_at[i]);
            if (minima && piece < d_all) copy16(to + Stage::m + piece * 16, from.m + d_at[i]);
            d_at[i] += Stage::steps;
        }
        STRATA_UNROLL
        for (int i = 0; i < s_pieces; ++i) {
            const int piece = thread_x() + i * threads;
            if (piece < s_all) copy16(to + Stage::scale + piece * 16, from.scale + s_at[i]);
            if (minima && piece < s_all) copy16(to + Stage::minimum + piece * 16, from.minimum + s_at[i]);
            s_at[i] += Stage::steps * 32;
        }
    }
};

}  // namespace strata::STRATA_ISA
