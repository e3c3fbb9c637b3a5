// Rows of float32 quantised for the products (docs/numerics.md 1.1), and the step between an expert's products.
#pragma once

#include "quantised_rows.h"

namespace strata::STRATA_ISA {

// x [rows, cols]: eight lanes for each block of 32 values.
STRATA_KERNEL(quantise_rows, (const float* x, uint8_t* by32, uint8_t* by16, int64_t rows, int64_t cols)) {
    start_next();
    after_previous();
    quantise_part(x, by32, by16, rows, cols, element());
}

// h = silu(gate) * up of `count` values.
STRATA_KERNEL(gate_rows, (const float* gate, const float* up, float* h, int64_t count)) {
    in_turn();
    const int64_t at = element();
    if (at < count) h[at] = silu(gate[at]) * up[at];
}

}  // namespace strata::STRATA_ISA
