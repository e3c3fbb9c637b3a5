// The same as prompt_places.h where four groups of 32 lanes ask the matrix unit together, which reads 64 rows of x and 64 of
// the weight in shared memory by itself. For places of 32 codes.
#pragma once

#include "prompt_loader.h"
#include "warpgroup.h"

namespace strata::STRATA_ISA {

STRATA_INLINE int first_row() { return warp() / 4 * 64; }

// Which of a tile's rows and columns a thread's results are, two neighbouring columns in a pair.
struct PromptResults {
    static constexpr int rows = 2, pairs = 8;
    STRATA_INLINE int row(int i) { return first_row() + warp() % 4 * 16 + lane() / 4 + 8 * i; }
    STRATA_INLINE int column() { return lane() % 4 * 2; }
    STRATA_INLINE int pair(int i, int j) { return j * 4 + i * 2; }
};

// Those that bring operands leave registers to those that compute.
template <int groups>
STRATA_INLINE void begin_to_compute() { take_registers<groups == 1 ? 208 : 160>(); }
template <int groups>
STRATA_INLINE void begin_to_bring() { give_registers<groups == 1 ? 40 : 32>(); }

// The stages of a block's units, one after the other, and the place that comes next.
template <int sub, bool minima, int groups>
struct PromptPlaces {
    using Stage = PromptStage<sub, minima, groups>;
    using R = typename Stage::Lines;
    PromptLoader<sub, minima, groups> loader;
    const uint8_t* stage = nullptr;
    int at = 0;  // of the stage
    // Of this group's codes, and its lanes' scales, in a stage.
    int x_record = warp() / 4 * R::bytes;
    int d_place = x_record + R::scale + (warp() % 4 / 2 * 32 + lane() / 4 * 4 + warp() % 2 * 2) * 4;
    int line_place = Stage::w + R::scale + lane() % 4 * 16;
    uint32_t x_address = 0, w_address = 0;

    // Adds the terms of the next place, docs/numerics.md 1.3 and 1.4; `first`: the sums begin with them.
    template <bool first>
    STRATA_METHOD void add(float (&sums)[32]) {
        if (at == 0) {
            stage = loader.next();
            x_address = tile_address(shared_place(stage + x_record));
            w_address = tile_address(shared_place(stage + Stage::w));
        }
        int32_t whole[32];
        ask_for(whole, x_address + at * 2, w_address + at * 2);
        const uint8_t* const scales = stage + at * R::line;
        float d[2], m[2] = {};
        const Words2 two = load8(scales + d_place);
        d[0] = float_of_bits(two.w[0]), d[1] = float_of_bits(two.w[1]);
        if (minima) {
            const Words2 more = load8(scales + d_place + R::minimum - R::scale);
            m[0] = float_of_bits(more.w[0]), m[1] = float_of_bits(more.w[1]);
        }
        take(whole);
        STRATA_UNROLL
        for (int i = 0; i < 4; ++i) {
            const Words4 four = load16(scales + line_place + 64 * i);
            Words4 low = {};
            if (minima) low = load16(scales + line_place + R::minimum - R::scale + 64 * i);
            STRATA_UNROLL
            for (int e = 0; e < 8; ++e) {
                const int row = e / 2 % 2, line = e / 4 * 2 + e % 2;
                float& sum = sums[8 * i + e];
                sum = fma(static_cast<float>(whole[8 * i + e]), float_of_bits(four.w[line]) * d[row], first ? 0.0f : sum);
                if (minima) sum = fma(m[row], float_of_bits(low.w[line]) * d[row], sum);
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

}  // namespace strata::STRATA_ISA
