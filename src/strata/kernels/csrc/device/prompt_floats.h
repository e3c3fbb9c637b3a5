// Products of weights that are plain floats with many rows of x, bit for bit as kernels/linear/naive.py: chains of
// fused multiply-adds along the values of a lane, and the lane rule's tree depth first (prompt_arrange.h,
// prompt_sums.h).
//
// A block of 128 threads computes 128 rows of x by 64 rows of the weight, a thread 8 by 8: rows m .. m + 3 and
// m + 64 .. m + 67, so that neighbours read neighbouring words, and likewise rows of the weight. Where there are few
// such tiles, eight blocks share one: each adds four of the lanes, a whole branch of the tree, and join_floats the
// rest.
#pragma once

#include "prompt_sums.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int float_threads = 128, float_rows = 128, float_lines = 64, float_results = 64;  // of x, of the weight
constexpr int float_most = 20, float_depth = 2;                        // values of a stage at most; stages in memory
constexpr int float_stage = float_most * (float_rows + float_lines);  // floats
constexpr int float_parts = 8;                                         // branches of the tree with four lanes each

// The tiles' values on their way, `step` at a time.
struct FloatLoader {
    const float* x;  // this thread's first four of the next stage
    const float* w;
    float* ring;
    int step, left;
    int slot = 0;

    STRATA_METHOD void ask() {
        if (left > 0) {
            float* const to = ring + slot * float_stage + 4 * thread_x();
            STRATA_UNROLL
            for (int i = 0; i < (float_most + 3) / 4; ++i)
                if (4 * i + warp() < step) copy16(to + 4 * i * float_rows, x + 4 * i * float_rows);
            STRATA_UNROLL
            for (int i = 0; i < (float_most + 7) / 8; ++i)
                if (8 * i + thread_x() / 16 < step)
                    copy16(to + float_most * float_rows + 8 * i * float_lines, w + 8 * i * float_lines);
            x += step * float_rows;
            w += step * float_lines;
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

// One value of a thread's eight rows of x and eight of the weight.
struct FloatValue {
    float x[8], w[8];

    STRATA_METHOD void load(const float* rows, const float* lines) {
        load_four(rows, x);
        load_four(rows + float_rows / 2, x + 4);
        load_four(lines, w);
        load_four(lines + float_lines / 2, w + 4);
    }

    // `first`: the sums begin with them; 0 + x w, for a product alone could be -0.
    template <bool first>
    STRATA_METHOD void add(float (&sums)[float_results]) const {
        STRATA_UNROLL
        for (int i = 0; i < float_results; ++i) sums[i] = fma(x[i / 8], w[i % 8], first ? 0.0f : sums[i]);
    }
};

// The values of the lane whose turn it is; the next value is read while one is added. A stage has an even number of
// values of a lane, or all of a pair of lanes.
struct FloatValues {
    FloatLoader loader;
    int of_lane;
    int slot = 0, left = 0;  // the next stage; values of the present one that are left
    const float* rows = nullptr;
    const float* lines = nullptr;

    STRATA_METHOD void next_stage() {
        wait_for_copies<float_depth - 2>();
        barrier();
        loader.ask();
        rows = loader.ring + slot * float_stage + float_row();
        lines = loader.ring + slot * float_stage + float_most * float_rows + float_line();
        slot = slot + 1 == float_depth ? 0 : slot + 1;
        left = loader.step;
    }

    template <bool first>
    STRATA_METHOD void add_two(FloatValue& even, FloatValue& odd, float (&sums)[float_results], bool more) {
        odd.load(rows + float_rows, lines + float_lines);
        even.add<first>(sums);
        rows += 2 * float_rows;
        lines += 2 * float_lines;
        if (more) even.load(rows, lines);
        odd.add<false>(sums);
    }

    STRATA_METHOD void add(float (&sums)[float_results]) {
        FloatValue even, odd;
        if (left == 0) next_stage();
        int here = left < of_lane ? left : of_lane;
        left -= here;
        even.load(rows, lines);
        add_two<true>(even, odd, sums, here > 2);
        here -= 2;
        STRATA_ROLL
        for (int todo = of_lane;;) {
            STRATA_ROLL
            for (; here > 0; here -= 2) add_two<false>(even, odd, sums, here > 2);
            todo -= loader.step;
            if (todo <= 0) return;
            next_stage();
            here = left;
            left = 0;
            even.load(rows, lines);
        }
    }
};

STRATA_INLINE void store_floats(const float (&sums)[float_results], float factor, int64_t rows, int64_t count, float* y) {
    const int64_t first_row = static_cast<int64_t>(block_y()) * float_rows + float_row();
    const int64_t first_line = static_cast<int64_t>(block_x()) * float_lines + float_line();
    STRATA_UNROLL
    for (int i = 0; i < 8; ++i) {
        const int64_t row = first_row + i % 4 + i / 4 * (float_rows / 2);
        if (row >= rows) continue;
        STRATA_UNROLL
        for (int j = 0; j < 8; j += 4) {
            const int64_t line = first_line + j / 4 * (float_lines / 2);
            float* const to = y + row * count + line;
            if (count % 4 == 0 && line < count) {
                Words4 four;
                STRATA_UNROLL
                for (int e = 0; e < 4; ++e) four.w[e] = bits_of_float(sums[8 * i + j + e] * factor);
                *reinterpret_cast<Words4*>(to) = four;
            } else {
                STRATA_UNROLL
                for (int e = 0; e < 4; ++e)
                    if (line + e < count) to[e] = sums[8 * i + j + e] * factor;
            }
        }
    }
}

// x and w arranged in tiles of float_rows and float_lines, each lane with of_lane values, which are even; a stage has
// `step` of them, a divisor of of_lane or 2 of_lane -> y [rows, count]. Grid: x tiles of the weight, y tiles of x, z 1,
// or float_parts for as many branches [z, rows, count].
STRATA_KERNEL_OF(float_threads, prompt_floats,
                 (const float* x, const float* w, float* y, int64_t rows, int64_t count, int64_t of_lane, int64_t step,
                  int64_t parts, int64_t scale_bits)) {
    DYNAMIC_SHARED(float, shared);
    const int pairs = 16 / static_cast<int>(parts), from = block_z() * pairs, each = static_cast<int>(of_lane);
    const int64_t x_tile = (block_y() * 32 + 2 * from) * of_lane, w_tile = (block_x() * 32 + 2 * from) * of_lane;
    const int stages = 2 * pairs * each / static_cast<int>(step);
    FloatValues values = {{x + x_tile * float_rows + 4 * thread_x(), w + w_tile * float_lines + 4 * thread_x(), shared,
                           static_cast<int>(step), stages},
                          each};
    WaitingSums<float_results> waiting = {shared + float_depth * float_stage + 4 * thread_x(), float_threads, {}};
    for (int i = 0; i + 1 < float_depth; ++i) values.loader.ask();
    TreeSums<float_results> sums;
    STRATA_ROLL
    for (int pair = 0;; ++pair) {
        values.add(sums.even);
        values.add(sums.odd);
        if (pair % 2 == 0) {
            add_to(sums.level1, sums.even, sums.odd);
            continue;
        }
        join(sums.odd, sums.even);
        join(sums.odd, sums.level1);
        if (parts == 1) climb_high(sums, pair, 32, waiting);
        if (pair + 1 == pairs) break;
    }
    store_floats(sums.odd, float_of_bits(static_cast<uint32_t>(scale_bits)), rows, count, y + block_z() * rows * count);
}

// The upper levels of the tree: branches [float_parts, all], in the order of the lanes' turns -> y [all].
STRATA_KERNEL(join_floats, (const float* branches, float* y, int64_t all, int64_t scale_bits)) {
    const int64_t at = element();
    if (at >= all) return;
    float sums[float_parts];
    STRATA_UNROLL
    for (int i = 0; i < float_parts; ++i) sums[i] = branches[i * all + at];
    STRATA_UNROLL
    for (int apart = 1; apart < float_parts; apart *= 2)
        STRATA_UNROLL
        for (int i = 0; i < float_parts; i += 2 * apart) sums[i] = sums[i] + sums[i + apart];
    y[at] = sums[0] * float_of_bits(static_cast<uint32_t>(scale_bits));
}

}  // namespace strata::STRATA_ISA
