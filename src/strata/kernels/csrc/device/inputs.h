// Rows of float32 quantised for the products (docs/numerics.md 1.1), and the step between an expert's products.
#pragma once

#include "quantised_rows.h"

namespace strata::STRATA_ISA {

// Eight lanes take block `index` of `rows` of `across` blocks each; the layouts as quantise_words.
STRATA_INLINE void quantise_eighth(const float (&x)[4], int64_t index, int64_t rows, int64_t across, uint8_t* by32,
                                   uint8_t* by16) {
    const int64_t row = index / across, cols = across * 32;
    const bool inside = row < rows;
    quantise_words(x, inside && by32 ? by32 + row * quantised_bytes<32>(cols) : nullptr,
                   inside && by16 ? by16 + row * quantised_bytes<16>(cols) : nullptr, index % across);
}

// x [rows, cols]: eight lanes for each block of 32 values.
STRATA_KERNEL(quantise_rows, (const float* x, uint8_t* by32, uint8_t* by16, int64_t rows, int64_t cols)) {
    start_next();
    after_previous();
    const int64_t first = element() * 4;
    float v[4];
    for (int i = 0; i < 4; ++i) v[i] = first < rows * cols ? x[first + i] : 0.0f;
    quantise_eighth(v, element() / 8, rows, cols / 32, by32, by16);
}

// h = silu(gate) * up, all [rows, cols] with cols a multiple of 32 where by32 or by16 is wanted.
STRATA_KERNEL(gate_rows, (const float* gate, const float* up, float* h, uint8_t* by32, uint8_t* by16, int64_t rows,
                          int64_t cols)) {
    start_next();
    after_previous();
    const int64_t first = element() * 4, count = rows * cols;
    float v[4];
    for (int i = 0; i < 4; ++i) {
        const int64_t at = first + i;
        v[i] = at < count ? silu(gate[at]) * up[at] : 0.0f;
        if (at < count) h[at] = v[i];
    }
    if (by32 || by16) quantise_eighth(v, element() / 8, rows, cols / 32, by32, by16);
}

}  // namespace strata::STRATA_ISA
