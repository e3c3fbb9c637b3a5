// Rows of plain floats (STRATA_FORMAT) as products of many rows read them: float32, value by value of a tile of rows.
//
// Value c of a row is lane c % 32's number c / 32 (docs/numerics.md 2). Its place is that of its lane in the order of
// prompt_layout.h, depth first along the tree, times the values of a lane, plus its number. Every lane is filled up to
// `of_lane` values with ones whose product is -0, which changes no sum: 0 in rows of x, -0 in rows of the weight.
//
//     float32 [rows / tile][32 * of_lane][tile]
#pragma once

#include "products_plain.h"
#include "prompt_layout.h"

namespace strata::STRATA_ISA {

constexpr int arrange_threads = 256;

// Grid: x blocks of 32 values, y blocks of 32 rows; rows beyond the last repeat it.
STRATA_KERNEL_OF(arrange_threads, arrange_rows,
                 (const uint8_t* data, const float* plane, float* to, int64_t rows, int64_t cols, int64_t of_lane,
                  int64_t tile, float beyond)) {
    SHARED(float, kept, 32 * 33);
    const int64_t column = static_cast<int64_t>(block_x()) * 32 + lane(), first = static_cast<int64_t>(block_y()) * 32;
    const int64_t across = (cols + 127) / 128;
    for (int r = warp(); r < 32; r += arrange_threads / 32) {
        const int64_t row = first + r < rows ? first + r : rows - 1;
        if constexpr (is_plain<STRATA_FORMAT>) {
            using F = STRATA_FORMAT;
            float value = beyond;
            if (column < cols) {
                value = F::value(reinterpret_cast<const typename F::Raw*>(data)[row * cols + column]);
                if (F::scaled) value = value * plane[row / 128 * across + column / 128];
            }
            kept[lane() * 33 + r] = value;
        }
    }
    barrier();
    const int64_t group = first / tile * 32 * of_lane;
    for (int l = warp(); l < 32; l += arrange_threads / 32) {
        const int64_t place = group + turn_of(l) * of_lane + block_x();
        to[place * tile + first % tile + lane()] = kept[l * 33 + lane()];
    }
}

}  // namespace strata::STRATA_ISA
