// Products of weights in codes with many rows of x, on matrix units, bit for bit as kernels/linear/naive.py: the sums of a
// sub-block are exact whoever adds them, and the few float operations keep the lane rule's order (prompt_layout.h).
// One unit for each STRATA_SUB (values that share a scale: 32 or 16), STRATA_MINIMA (0 or 1) and STRATA_THREADS (64, 128
// or 256: as many as shared memory allows).
//
// A group of 32 lanes computes 32 rows of x by 32 rows of the weight, a block of T threads 64 by T / 2; every thread has
// 32 results. Dynamic shared bytes: kernels/linear/prompt.py, shared_bytes.
#pragma once

#include "prompt_loader.h"
#include "prompt_sums.h"

namespace strata::STRATA_ISA {

// 1.5 * 2^23: an integer below 2^22 in size, added to these bits, is the float of the sum.
constexpr int32_t magic_bits = 0x4b400000;
constexpr float magic_float = 12582912.0f;

// What a thread's 32 results need of one place: two rows of x twice, four pairs of rows of the weight.
template <bool minima>
struct PlaceScales {
    float d[4], m[minima ? 4 : 1], scale[8], minimum[minima ? 8 : 1];
};

STRATA_INLINE void load_eight(const float* from, float* to) {
    STRATA_UNROLL
    for (int i = 0; i < 2; ++i) {
        const Words4 four = load16(from + 4 * i);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) to[4 * i + j] = float_of_bits(four.w[j]);
    }
}

template <class Stage, bool minima>
STRATA_INLINE void load_scales(const uint8_t* stage, int place, PlaceScales<minima>& s) {
    const int row = (warp() & 1) * 32 + lane() / 4, group = warp() >> 1;
    const float* d = reinterpret_cast<const float*>(stage + Stage::d);
    const float* m = reinterpret_cast<const float*>(stage + Stage::m);
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) {
        s.d[i] = d[(row + 8 * i) * Stage::steps + place];
        if (minima) s.m[i] = m[(row + 8 * i) * Stage::steps + place];
    }
    const int at = (group * Stage::steps + place) * 32 + lane() % 4 * 8;
    load_eight(reinterpret_cast<const float*>(stage + Stage::scale) + at, s.scale);
    if (minima) load_eight(reinterpret_cast<const float*>(stage + Stage::minimum) + at, s.minimum);
}

// docs/numerics.md 1.3 and 1.4 for the results of tile (i, j): d holds their integer sums, plus magic_bits.
template <bool minima>
STRATA_INLINE void add_terms(const int32_t (&d)[4], const PlaceScales<minima>& s, int i, int j, float* now) {
    STRATA_UNROLL
    for (int e = 0; e < 4; ++e) {
        const int row = 2 * i + e / 2, column = 2 * j + e % 2;
        const float sum = float_of_bits(static_cast<uint32_t>(d[e])) - magic_float;
        now[e] = fma(sum, s.scale[column] * s.d[row], now[e]);
        if (minima) now[e] = fma(s.m[minima ? row : 0], s.minimum[minima ? column : 0] * s.d[row], now[e]);
    }
}

template <int sub, bool minima, int threads>
STRATA_INLINE void compute_stage(const uint8_t* stage, const int64_t* words, int places, TreeSums<32>& sums, float* deep) {
    using Stage = PromptStage<sub, minima, threads>;
    constexpr int halves = 32 / sub;  // places of 32 columns
    STRATA_ROLL
    for (int first = 0; first < places; first += halves) {
        uint32_t a[2][4], b[2][4];
        STRATA_UNROLL
        for (int i = 0; i < 2; ++i) {
            load_fragments(stage + Stage::x, (warp() & 1) * 32 + 16 * i, first * sub, a[i]);
            load_fragments(stage + Stage::w, (warp() >> 1) * 32 + 16 * i, first * sub, b[i]);
        }
        STRATA_UNROLL
        for (int h = 0; h < halves; ++h) {
            if (first + h >= places) continue;
            PlaceScales<minima> s;
            load_scales<Stage, minima>(stage, first + h, s);
            const int64_t word = words[first + h];
            STRATA_UNROLL
            for (int i = 0; i < 2; ++i) {
                STRATA_UNROLL
                for (int j = 0; j < 4; ++j) {
                    int32_t d[4];
                    if constexpr (sub == 32) mma_s8(d, a[i], b[j / 2][j % 2], b[j / 2][2 + j % 2], magic_bits);
                    else mma_s8_half(d, a[i][2 * h], a[i][2 * h + 1], b[j / 2][2 * h + j % 2], magic_bits);
                    add_terms<minima>(d, s, i, j, sums.now + 16 * i + 4 * j);
                }
            }
            if (word != 0) climb(sums, climb_of(word), deep, threads);
        }
    }
}

// y [results, count] of the unit's rows; `first` is the first row of the weight's tile.
STRATA_INLINE void store_results(const UnitRows& rows, const float (&now)[32], float factor, int64_t first, int64_t count,
                                 float* y) {
    const int row = (warp() & 1) * 32 + lane() / 4;
    const int64_t column = first + (warp() >> 1) * 32 + lane() % 4 * 2;
    STRATA_UNROLL
    for (int i = 0; i < 32; ++i) {
        const int r = row + i / 16 * 16 + i % 4 / 2 * 8;
        const int64_t c = column + i / 4 % 4 * 8 + i % 2;
        if (r < rows.tile.count && c < count) y[rows.result[r] * count + c] = now[i] * factor;
    }
}

template <int sub, bool minima, int threads>
STRATA_INLINE void run_prompt(const PromptWork& work, const PromptOperands& from, const int64_t* order, float* y,
                              int64_t count, int64_t scale_bits, unsigned char* shared) {
    using Stage = PromptStage<sub, minima, threads>;
    SHARED(UnitRows, rows, units_under_way);
    float* const deep = reinterpret_cast<float*>(shared) + thread_x();
    uint8_t* const ring = shared + deep_levels * 32 * threads * 4;
    const int64_t stride = grid_x(), stages = stages_of(from.cols), places = from.cols / sub;
    int64_t unit = work.find(block_x(), stride);
    PromptLoader<sub, minima, threads> loader = {work, from, rows, ring, stride, stages, unit};
    loader.begin();
    barrier();
    for (int i = 0; i + 1 < prompt_depth; ++i) {
        loader.ask();
        barrier();
    }
    int slot = 0, number = 0;
    for (; unit < work.units(); unit = work.find(unit + stride, stride), ++number) {
        TreeSums<32> sums;
        clear(sums.now);
        STRATA_ROLL
        for (int64_t stage = 0; stage < stages; ++stage) {
            wait_for_copies<prompt_depth - 2>();
            barrier();  // everyone's copies have landed, and nobody reads the slot that is filled next
            loader.ask();
            const int64_t before = stage * Stage::steps, left = places - before;
            compute_stage<sub, minima, threads>(ring + slot * Stage::bytes, order + before,
                                                static_cast<int>(left < Stage::steps ? left : Stage::steps), sums, deep);
            slot = slot + 1 == prompt_depth ? 0 : slot + 1;
        }
        const UnitRows& here = rows[number % units_under_way];
        const int64_t bits = work.tiles ? work.table[here.tile.expert].scale_bits[work.kind] : scale_bits;
        store_results(here, sums.now, float_of_bits(static_cast<uint32_t>(bits)), unit % work.across * Stage::rows, count, y);
    }
}

STRATA_KERNEL_OF(STRATA_THREADS, prompt_products,
                 (const int64_t* order, const uint8_t* x, const float* d, const float* m, const uint8_t* w,
                  const float* scale, const float* minimum, const RowsTile* tiles, const int32_t* tile_starts,
                  const int32_t* pairs, const ExpertEntry* table, int64_t first_expert, int64_t experts, int64_t rows,
                  int64_t top_k, int64_t kind, int64_t format, float* y, int64_t count, int64_t cols, int64_t padded,
                  int64_t scale_bits)) {
    DYNAMIC_SHARED(unsigned char, shared);
    constexpr int threads = STRATA_THREADS, high = threads / 2;
    const PromptWork work = prompt_work(tiles, tile_starts, pairs, table, first_expert, experts, (count + high - 1) / high,
                                        rows, top_k, kind, format);
    const PromptOperands from = {x, d, m, w, scale, minimum, cols, padded, first_expert};
    run_prompt<STRATA_SUB, STRATA_MINIMA != 0, threads>(work, from, order, y, count, scale_bits, shared);
}

}  // namespace strata::STRATA_ISA
