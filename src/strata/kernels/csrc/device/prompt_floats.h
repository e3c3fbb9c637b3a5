// Products of weights that are plain floats with many rows of x, bit for bit as kernels/linear/naive.py: chains of fused
// multiply-adds along the values of a lane, and the lane rule's tree depth first (prompt_arrange.h, prompt_sums.h).
//
// A block of 128 threads computes 128 rows of x by 64 rows of the weight, a thread 8 by 8: rows m .. m + 3 and
// m + 64 .. m + 67, so that neighbours read neighbouring words, and likewise rows of the weight. Shared memory returns 32
// words a cycle, of which each has to serve four of the processor's 128 multiply-adds: hence the size. Sums that wait at
// the higher levels are used so rarely here that they lie in local memory.
#pragma once

#include "prompt_sums.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int float_threads = 128, float_rows = 128, float_lines = 64, float_results = 64;  // of x, of the weight
constexpr int float_step = 8, float_depth = 4;                          // values of a lane that arrive together
constexpr int float_stage = float_step * (float_rows + float_lines);    // floats

// The tiles' values on their way, `float_step` of a lane at a time; every lane has `rounds` of them.
struct FloatLoader {
    const float* x;
    const float* w;
    float* ring;
    int64_t of_lane, rounds, left;
    int64_t lane_at = 0, round = 0;
    int slot = 0;

    STRATA_METHOD void ask() {
        if (left > 0) {
            const int64_t place = lane_at * of_lane + round * float_step, rest = of_lane - round * float_step;
            const int values = static_cast<int>(rest < float_step ? rest : float_step);
            float* to = ring + slot * float_stage;
            for (int i = thread_x(); i < values * (float_rows / 4); i += float_threads)
                copy16(to + 4 * i, x + place * float_rows + 4 * i);
            float* lines = to + float_step * float_rows;
            for (int i = thread_x(); i < values * (float_lines / 4); i += float_threads)
                copy16(lines + 4 * i, w + place * float_lines + 4 * i);
            if (++round == rounds) round = 0, ++lane_at;
            --left;
        }
        commit_copies();
        slot = slot + 1 == float_depth ? 0 : slot + 1;
    }
};

STRATA_INLINE void load_four(const float* from, float* to) {
    const Words4 four = load16(from);
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) to[i] = float_of_bits(four.w[i]);
}

STRATA_INLINE int float_row() { return thread_x() / 8 * 4; }
STRATA_INLINE int float_line() { return thread_x() % 8 * 4; }

STRATA_INLINE void add_value(const float* rows, const float* lines, float (&sums)[float_results]) {
    float a[8], b[8];
    load_four(rows, a);
    load_four(rows + float_rows / 2, a + 4);
    load_four(lines, b);
    load_four(lines + float_lines / 2, b + 4);
    STRATA_UNROLL
    for (int i = 0; i < float_results; ++i) sums[i] = fma(a[i / 8], b[i % 8], sums[i]);
}

// A whole step has no branches, so that the next values are read while these are added.
STRATA_INLINE void add_values(const float* stage, int values, float (&sums)[float_results]) {
    const float* rows = stage + float_row();
    const float* lines = stage + float_step * float_rows + float_line();
    if (values == float_step) {
        STRATA_UNROLL
        for (int k = 0; k < float_step; ++k) add_value(rows + k * float_rows, lines + k * float_lines, sums);
    } else {
        STRATA_ROLL
        for (int k = 0; k < values; ++k) add_value(rows + k * float_rows, lines + k * float_lines, sums);
    }
}

// The values of the lane whose turn it is.
struct FloatValues {
    FloatLoader loader;
    int slot;

    STRATA_METHOD void add(int own, float (&sums)[float_results]) {
        STRATA_ROLL
        for (int round = 0; round < loader.rounds; ++round) {
            wait_for_copies<float_depth - 2>();
            barrier();
            loader.ask();
            const int left = own - round * float_step;
            add_values(loader.ring + slot * float_stage, left < float_step ? left : float_step, sums);
            slot = slot + 1 == float_depth ? 0 : slot + 1;
        }
    }
};

// x and w arranged in tiles of float_rows and float_lines -> y [rows, count]. Grid: x tiles of the weight, y tiles of x.
STRATA_KERNEL_OF(float_threads, prompt_floats,
                 (const float* x, const float* w, float* y, int64_t rows, int64_t count, int64_t cols, int64_t scale_bits)) {
    DYNAMIC_SHARED(float, shared);
    float deep[deep_levels * float_results];
    const int64_t of_lane = (cols + 31) / 32, rounds = (of_lane + float_step - 1) / float_step;
    FloatValues values = {{x + block_y() * 32 * of_lane * float_rows, w + block_x() * 32 * of_lane * float_lines, shared, of_lane,
                           rounds, 32 * rounds},
                          0};
    for (int i = 0; i + 1 < float_depth; ++i) values.loader.ask();
    TreeSums<float_results> sums;
    STRATA_ROLL
    for (int pair = 0; pair < 16; ++pair) {
        const int first = turn_of(2 * pair), of_row = static_cast<int>(cols);
        if (first >= of_row) {  // a short row: what came for these lanes is passed over
            for (int i = 0; i < 2; ++i) values.add(0, sums.even);
            continue;
        }
        clear(sums.even);
        values.add(own_of(first, of_row), sums.even);
        clear(sums.odd);
        values.add(own_of(first + 16, of_row), sums.odd);
        climb(sums, pair, of_row, deep, 1);
    }
    const float factor = float_of_bits(static_cast<uint32_t>(scale_bits));
    const int64_t first_row = static_cast<int64_t>(block_y()) * float_rows + float_row();
    const int64_t first_line = static_cast<int64_t>(block_x()) * float_lines + float_line();
    STRATA_UNROLL
    for (int i = 0; i < 8; ++i) {
        const int64_t row = first_row + i % 4 + i / 4 * (float_rows / 2);
        if (row >= rows) continue;
        STRATA_UNROLL
        for (int j = 0; j < 8; ++j) {
            const int64_t line = first_line + j % 4 + j / 4 * (float_lines / 2);
            if (line < count) y[row * count + line] = sums.odd[8 * i + j] * factor;
        }
    }
}

}  // namespace strata::STRATA_ISA
