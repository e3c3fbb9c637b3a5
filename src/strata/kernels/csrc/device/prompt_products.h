// Products of weights in codes with many rows of x, on matrix units, bit for bit as kernels/linear/naive.py: the sums of a
// sub-block are exact whoever adds them, and the few float operations keep the lane rule's order (prompt_layout.h).
// One unit for each STRATA_SUB (values that share a scale: 32 or 16), STRATA_MINIMA (0 or 1) and STRATA_THREADS (64 or
// 128: as many as shared memory allows; a processor's registers hold 256).
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

// The operands of 32 codes: two tiles of 16 rows of x, four of 8 rows of the weight.
struct Fragments {
    uint32_t x[2][4], w[2][4];
};

template <class Stage>
STRATA_INLINE void load_operands(const uint8_t* stage, int column, Fragments& f) {
    STRATA_UNROLL
    for (int i = 0; i < 2; ++i) {
        load_rows(stage + Stage::x, (warp() & 1) * 32 + 16 * i, column, f.x[i]);
        load_columns(stage + Stage::w, (warp() >> 1) * 32 + 16 * i, column, f.w[i]);
    }
}

// The stages of a block's units, one after the other, and the place that comes next.
template <int sub, bool minima, int threads>
struct PromptPlaces {
    using Stage = PromptStage<sub, minima, threads>;
    PromptLoader<sub, minima, threads> loader;
    const uint8_t* stage = nullptr;
    int slot = 0, at = 0;  // of the ring; of the stage
    Fragments f = {};

    STRATA_METHOD void next_stage() {
        wait_for_copies<prompt_depth - 2>();
        barrier();  // everyone's copies have landed, and nobody reads the slot that is filled next
        loader.ask();
        stage = loader.ring + slot * Stage::bytes;
        slot = slot + 1 == prompt_depth ? 0 : slot + 1;
        load_operands<Stage>(stage, 0, f);
    }

    // Adds the terms of the next place; its successor's operands are asked for while they are added.
    STRATA_METHOD void add(float (&sums)[32]) {
        if (at == 0) next_stage();
        PlaceScales<minima> s;
        load_scales<Stage, minima>(stage, at, s);
        int32_t d[8][4];
        const bool second = sub == 16 && (at & 1) != 0;
        STRATA_UNROLL
        for (int i = 0; i < 8; ++i) {
            const uint32_t(&x)[4] = f.x[i / 4];
            const uint32_t* w = f.w[i % 4 / 2] + i % 2 * 2;
            if constexpr (sub == 32) mma_s8(d[i], x, w[0], w[1], magic_bits);
            else mma_s8_half(d[i], second ? x[2] : x[0], second ? x[3] : x[1], second ? w[1] : w[0], magic_bits);
        }
        ++at;
        if (at == Stage::steps) at = 0;
        else if (sub == 32 || second) load_operands<Stage>(stage, at * sub, f);
        STRATA_UNROLL
        for (int i = 0; i < 8; ++i) add_terms<minima>(d[i], s, i / 4, i % 4, sums + 4 * i);
    }
};

// y [results, count] of the unit's rows; `first` is the first row of the weight's tile.
STRATA_INLINE void store_results(const UnitRows& rows, const float (&sums)[32], float factor, int64_t first, int64_t count,
                                 float* y) {
    const int row = (warp() & 1) * 32 + lane() / 4;
    const int column = (warp() >> 1) * 32 + lane() % 4 * 2, left = static_cast<int>(count - first) - column;
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) {
        if (row + 8 * i >= rows.tile.count) continue;
        float* to = y + rows.result[row + 8 * i] * count + first + column;
        STRATA_UNROLL
        for (int j = 0; j < 8; ++j)
            if (j / 2 * 8 + j % 2 < left) to[j / 2 * 8 + j % 2] = sums[i / 2 * 16 + j / 2 * 4 + i % 2 * 2 + j % 2] * factor;
    }
}

// All places of a unit, in the order of the tree: the result is in sums.odd.
template <int sub, bool minima, int threads>
STRATA_INLINE void add_unit(PromptPlaces<sub, minima, threads>& places, int count, TreeSums<32>& sums, float* deep) {
    places.at = 0;
    STRATA_ROLL
    for (int pair = 0; pair < 16; ++pair) {
        const int first = turn_of(2 * pair);
        if (first >= count) continue;
        clear(sums.even);
        STRATA_ROLL
        for (int i = own_of(first, count); i > 0; --i) places.add(sums.even);
        clear(sums.odd);
        STRATA_ROLL
        for (int i = own_of(first + 16, count); i > 0; --i) places.add(sums.odd);
        climb(sums, pair, count, deep, threads);
    }
}

template <int sub, bool minima, int threads>
STRATA_INLINE void run_prompt(const PromptWork& work, const PromptOperands& from, float* y, int64_t count,
                              int64_t scale_bits, unsigned char* shared) {
    using Stage = PromptStage<sub, minima, threads>;
    SHARED(UnitRows, rows, units_under_way);
    float* const deep = reinterpret_cast<float*>(shared) + thread_x();
    uint8_t* const ring = shared + deep_levels * 32 * threads * 4;
    const int64_t stride = grid_x();
    int64_t unit = work.find(block_x(), stride);
    PromptPlaces<sub, minima, threads> places = {{work, from, rows, ring, stride, stages_of(from.cols), unit}};
    places.loader.begin();
    barrier();
    for (int i = 0; i + 1 < prompt_depth; ++i) {
        places.loader.ask();
        barrier();
    }
    for (int number = 0; unit < work.units(); unit = work.find(unit + stride, stride), ++number) {
        TreeSums<32> sums;
        add_unit(places, static_cast<int>(from.cols / sub), sums, deep);
        const UnitRows& here = rows[number % units_under_way];
        const int64_t bits = work.tiles ? work.table[here.tile.expert].scale_bits[work.kind] : scale_bits;
        store_results(here, sums.odd, float_of_bits(static_cast<uint32_t>(bits)), work.line_of(unit) * Stage::rows, count, y);
    }
}

STRATA_KERNEL_OF(STRATA_THREADS, prompt_products,
                 (const uint8_t* x, const float* d, const float* m, const uint8_t* w,
                  const float* scale, const float* minimum, const RowsTile* tiles, const int32_t* tile_starts,
                  const int32_t* pairs, const ExpertEntry* table, int64_t first_expert, int64_t experts, int64_t rows,
                  int64_t top_k, int64_t kind, int64_t format, float* y, int64_t count, int64_t cols, int64_t padded,
                  int64_t scale_bits)) {
    DYNAMIC_SHARED(unsigned char, shared);
    constexpr int threads = STRATA_THREADS, high = threads / 2;
    const PromptWork work = prompt_work(tiles, tile_starts, pairs, table, first_expert, experts, (count + high - 1) / high,
                                        rows, top_k, kind, format);
    const PromptOperands from = {x, d, m, w, scale, minimum, cols, padded, first_expert};
    run_prompt<STRATA_SUB, STRATA_MINIMA != 0, threads>(work, from, y, count, scale_bits, shared);
}

}  // namespace strata::STRATA_ISA
