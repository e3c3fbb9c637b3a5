// Rows of x quantised for products of many rows (docs/numerics.md 1.1; prompt_layout.h). Eight lanes have a block of 32
// values, four each.
#pragma once

#include "bytes.h"
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

// This lane's four codes of block `block` of row `row`; `on`: there is such a block.
template <int sub>
STRATA_INLINE void put_prompt_codes(const PromptRows& to, int64_t cols, int64_t row, int64_t block, uint32_t codes, float d,
                                    bool on) {
    int32_t sum = dot4(static_cast<int32_t>(codes), 0x01010101, 0);
    STRATA_UNROLL
    for (int mask = sub / 8; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask);
    if (!on) return;
    const int value = lane() % 8 * 4;
    const int64_t stages = stages_of(cols), at = row * stages * (stage_codes / sub) + to.place_of[block * (32 / sub) + value / sub];
    *reinterpret_cast<uint32_t*>(to.codes + at * sub + value % sub) = codes;
    if (value % sub != 0) return;
    to.d[at] = d;
    to.m[at] = -static_cast<float>(sum);
}

// Which four values a lane has: of all rows' blocks in order, the last one again beyond the end.
struct FourValues {
    int64_t row, block, at;
    bool on;
};

STRATA_INLINE FourValues four_values(int64_t rows, int64_t cols) {
    const uint32_t across = static_cast<uint32_t>(cols / 32), all = static_cast<uint32_t>(rows) * across;
    const uint32_t index = static_cast<uint32_t>(element() / 8), here = index < all ? index : all - 1;
    const int64_t row = here / across, block = here % across;
    return {row, block, row * cols + block * 32 + lane() % 8 * 4, index < all};
}

STRATA_INLINE void put_four(const FourValues& four, const float (&x)[4], const PromptRows& by32, const PromptRows& by16,
                            int64_t cols) {
    float d;
    const uint32_t codes = quantise_four(x, d);
    if (by32.codes) put_prompt_codes<32>(by32, cols, four.row, four.block, codes, d, four.on);
    if (by16.codes) put_prompt_codes<16>(by16, cols, four.row, four.block, codes, d, four.on);
}

// x [rows, cols], cols a multiple of 32; a thread for each four values.
STRATA_KERNEL(prompt_quantise, (const float* x, uint8_t* codes32, float* d32, float* m32, const int64_t* place32,
                                uint8_t* codes16, float* d16, float* m16, const int64_t* place16, int64_t rows,
                                int64_t cols)) {
    const FourValues four = four_values(rows, cols);
    const Words4 words = load16(x + four.at);
    float value[4];
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) value[i] = float_of_bits(words.w[i]);
    put_four(four, value, {codes32, d32, m32, place32}, {codes16, d16, m16, place16}, cols);
}

// The same for silu(gate) * up, both [rows, cols].
STRATA_KERNEL(prompt_middle, (const float* gate, const float* up, uint8_t* codes32, float* d32, float* m32,
                              const int64_t* place32, uint8_t* codes16, float* d16, float* m16, const int64_t* place16,
                              int64_t rows, int64_t cols)) {
    const FourValues four = four_values(rows, cols);
    const Words4 g = load16(gate + four.at), u = load16(up + four.at);
    float value[4];
    STRATA_UNROLL
    for (int i = 0; i < 4; ++i) value[i] = silu(float_of_bits(g.w[i])) * float_of_bits(u.w[i]);
    put_four(four, value, {codes32, d32, m32, place32}, {codes16, d16, m16, place16}, cols);
}

}  // namespace strata::STRATA_ISA
