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

// A stage in shared memory, for a block of so many times 128 threads: 64 rows of x for each, 64 of the weight for all.
template <int sub, bool minima, int groups>
struct PromptStage {
    static constexpr int steps = stage_codes / sub, rows = 64 * groups, threads = 128 * groups;
    static constexpr int x = 0, w = x + rows * stage_codes, d = w + tile_lines * stage_codes;
    static constexpr int x_scales = rows * steps * 4, w_scales = tile_lines * steps * 4;
    static constexpr int m = d + x_scales, scale = m + (minima ? x_scales : 0), minimum = scale + w_scales;
    static constexpr int bytes = minimum + (minima ? w_scales : 0);
};

constexpr int prompt_depth = 2;  // stages in shared memory

template <int sub, bool minima, int groups>
struct PromptLoader {
    using Stage = PromptStage<sub, minima, groups>;
    static constexpr int threads = Stage::threads, step = threads / 8;  // rows from one piece of a thread to its next
    static constexpr int x_pieces = Stage::rows / step, w_pieces = (tile_lines + step - 1) / step;
    static constexpr int d_all = Stage::x_scales / 16, s_all = Stage::w_scales / 16;
    static_assert(d_all <= threads && s_all <= threads, "a thread brings at most one piece of each");

    const PromptWork& work;
    const PromptOperands& from;
    UnitRows<Stage::rows>* rows;  // [units_under_way]
    uint8_t* ring;                // [prompt_depth] stages
    int stride, stages, unit, next = 0;
    int stage = 0, number = 0, slot = 0;  // of the unit; of units so far; of the ring
    RowsTile next_tile = {};
    int32_t next_result = 0;
    // Where the next stage lies, and this thread's pieces of it from there, in bytes: offsets of 32 bits save registers.
    const uint8_t* x = nullptr;
    const uint8_t* w = nullptr;
    const uint8_t* d = nullptr;
    const uint8_t* scale = nullptr;
    uint32_t x_at[x_pieces] = {}, d_at = 0, w_at = 0;

    // The rows of the first unit; a barrier follows.
    STRATA_METHOD void begin() {
        if (unit >= work.units) return;
        next_tile = work.tile_of(unit);
        if (thread_x() < Stage::rows) put_rows(rows[0], work.result_of(next_tile, thread_x()));
    }

    STRATA_METHOD void put_rows(UnitRows<Stage::rows>& to, int32_t result) {
        to.result[thread_x()] = result;
        to.source[thread_x()] = work.row_of_x(result);
        if (thread_x() == 0) to.tile = next_tile;
    }

    // Called once between two barriers, by the whole block.
    STRATA_METHOD void ask() {
        if (unit < work.units) {
            if (stage == 0) {
                find_pieces(rows[number % units_under_way]);
                next = work.find(unit + stride, stride);
                if (next < work.units) next_tile = work.tile_of(next);
            }
            copy_stage(ring + slot * Stage::bytes);
            if (stage < 3) look_ahead();
            if (++stage == stages) stage = 0, unit = next, ++number;
        }
        commit_copies();
        slot = slot + 1 == prompt_depth ? 0 : slot + 1;
    }

    // The next unit's rows, in steps, so that nobody waits for them: its tile, its pairs, then into shared memory.
    STRATA_METHOD void look_ahead() {
        if (next >= work.units || thread_x() >= Stage::rows) return;
        if (stage == 1 || stages == 1) next_result = work.result_of(next_tile, thread_x());
        if (stage == 2 || (stages < 3 && stage + 1 == stages)) put_rows(rows[(number + 1) % units_under_way], next_result);
    }

    STRATA_METHOD void find_pieces(const UnitRows<Stage::rows>& here) {
        const uint32_t wide = static_cast<uint32_t>(stages) * stage_codes, places = static_cast<uint32_t>(stages) * Stage::steps;
        const int row = thread_x() / 8, each = Stage::steps / 4;
        STRATA_UNROLL
        for (int i = 0; i < x_pieces; ++i) x_at[i] = here.source[row + i * step] * wide + thread_x() % 8 * 16;
        if (thread_x() < d_all) d_at = here.source[thread_x() / each] * (places * 4) + thread_x() % each * 16;
        w_at = row * wide + thread_x() % 8 * 16;
        const int64_t panel = (here.tile.expert - (work.tiles ? from.first_expert : 0)) * from.padded;
        const int64_t first = panel + work.line_of(unit) * tile_lines;
        x = from.x;
        w = from.w + first * wide;
        d = reinterpret_cast<const uint8_t*>(from.d);
        scale = reinterpret_cast<const uint8_t*>(from.scale + first * places);
    }

    STRATA_METHOD void copy_stage(uint8_t* to) {
        uint8_t* const place = to + swizzled(thread_x() / 8, thread_x() % 8 * 16);  // rows `step` apart are swizzled alike
        const uint32_t wide = static_cast<uint32_t>(step * stages) * stage_codes, own = thread_x() * 16;
        STRATA_UNROLL
        for (int i = 0; i < x_pieces; ++i) copy16(place + Stage::x + i * step * stage_codes, x + x_at[i]);
        STRATA_UNROLL
        for (int i = 0; i < w_pieces; ++i)
            if ((i + 1) * step <= tile_lines || thread_x() < (tile_lines - i * step) * 8)
                copy16(place + Stage::w + i * step * stage_codes, w + (w_at + i * wide));
        if (thread_x() < d_all) {
            copy16(to + own + Stage::d, d + d_at);
            if (minima) copy16(to + own + Stage::m, d + (from.m - from.d) * 4 + d_at);
        }
        if (thread_x() < s_all) {
            copy16(to + own + Stage::scale, scale + own);
            if (minima) copy16(to + own + Stage::minimum, scale + (from.minimum - from.scale) * 4 + own);
        }
        x += stage_codes;
        w += stage_codes;
        d += Stage::steps * 4;
        scale += Stage::steps * tile_lines * 4;
    }
};

}  // namespace strata::STRATA_ISA
