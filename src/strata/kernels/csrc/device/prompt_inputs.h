// Rows of x quantised for products of many rows (docs/numerics.md 1.1; prompt_layout.h).
#pragma once

#include "prompt_layout.h"
#include "quantise.h"

namespace strata::STRATA_ISA {

// Quantised rows of one number of values per scale; null codes: not wanted.
struct PromptRows {
    uint8_t* codes;
    float* d;
    float* m;
    const int64_t* place_of;
};

// A group of lanes holds block `block` of row `row`, a value each.
template <int sub>
STRATA_INLINE void put_prompt_block(const PromptRows& to, int64_t cols, int64_t row, int64_t block, int32_t code, float d) {
    int32_t sum = code;
    for (int mask = sub / 2; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask);
    const int64_t places = stages_of(cols) * (stage_codes / sub), place = to.place_of[block * (32 / sub) + lane() / sub];
    to.codes[row * stages_of(cols) * stage_codes + place * sub + lane() % sub] = static_cast<uint8_t>(code);
    if (lane() % sub == 0) {
        to.d[row * places + place] = d;
        to.m[row * places + place] = -static_cast<float>(sum);
    }
}

STRATA_INLINE void put_prompt_values(float value, const PromptRows& by32, const PromptRows& by16, int64_t cols, int64_t row,
                                     int64_t block) {
    float d;
    const int32_t code = quantise_lane(value, d);
    if (by32.codes) put_prompt_block<32>(by32, cols, row, block, code, d);
    if (by16.codes) put_prompt_block<16>(by16, cols, row, block, code, d);
}

// x [rows, cols]: a group of lanes for each block of 32 values.
STRATA_KERNEL(prompt_quantise, (const float* x, uint8_t* codes32, float* d32, float* m32, const int64_t* place32,
                                uint8_t* codes16, float* d16, float* m16, const int64_t* place16, int64_t rows,
                                int64_t cols)) {
    const int64_t across = cols / 32, index = element() / 32;
    if (index >= rows * across) return;  // a whole group of lanes
    const int64_t row = index / across, block = index % across;
    put_prompt_values(x[row * cols + block * 32 + lane()], {codes32, d32, m32, place32}, {codes16, d16, m16, place16}, cols,
                      row, block);
}

// The same for silu(gate) * up, both [rows, cols].
STRATA_KERNEL(prompt_middle, (const float* gate, const float* up, uint8_t* codes32, float* d32, float* m32,
                              const int64_t* place32, uint8_t* codes16, float* d16, float* m16, const int64_t* place16,
                              int64_t rows, int64_t cols)) {
    const int64_t across = cols / 32, index = element() / 32;
    if (index >= rows * across) return;
    const int64_t row = index / across, block = index % across, at = row * cols + block * 32 + lane();
    put_prompt_values(silu(gate[at]) * up[at], {codes32, d32, m32, place32}, {codes16, d16, m16, place16}, cols, row, block);
}

}  // namespace strata::STRATA_ISA
