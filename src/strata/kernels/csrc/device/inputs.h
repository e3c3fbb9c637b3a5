// Rows of float32 quantised for the products (docs/numerics.md 1.1), and the step between an expert's products.
#pragma once

#include "quantised_rows.h"

namespace strata::STRATA_ISA {

// x [rows, cols]: a group of lanes for each block of 32 values.
STRATA_KERNEL(quantise_rows, (const float* x, uint8_t* by32, uint8_t* by16, int64_t rows, int64_t cols)) {
    const int64_t across = cols / 32, index = element() / 32;
    if (index >= rows * across) return;  // a whole group of lanes
    const int64_t row = index / across, block = index % across;
    quantise_block(x[row * cols + block * 32 + lane()], by32, by16, cols, row, block);
}

// h = silu(gate) * up, all [rows, cols] with cols a multiple of 32 where by32 or by16 is wanted.
STRATA_KERNEL(gate_rows, (const float* gate, const float* up, float* h, uint8_t* by32, uint8_t* by16, int64_t rows,
                          int64_t cols)) {
    const int64_t across = (cols + 31) / 32, index = element() / 32;
    if (index >= rows * across) return;  // a whole group of lanes
    const int64_t row = index / across, block = index % across, column = block * 32 + lane();
    float value = 0.0f;
    if (column < cols) {
        value = silu(gate[row * cols + column]) * up[row * cols + column];
        h[row * cols + column] = value;
    }
    if (by32 || by16) quantise_block(value, by32, by16, cols, row, block);
}

}  // namespace strata::STRATA_ISA
