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

constexpr int arrange_threads = 256, arranged_rows = 128;  // rows of a block

// Grid: x blocks of 32 values, y blocks of 128 rows; rows beyond the last repeat it.
STRATA_KERNEL_OF(arrange_threads, arrange_rows,
                 (const uint8_t* data, const float* plane, float* to, int64_t rows, int64_t cols, int64_t of_lane,
                  int64_t tile, float beyond)) {
    SHARED(float, kept, 32 * (arranged_rows + 1));
    const int64_t column = static_cast<int64_t>(block_x()) * 32 + lane(), across = (cols + 127) / 128;
    const int32_t first = block_y() * arranged_rows, last = static_cast<int32_t>(rows) - 1;
    STRATA_UNROLL
    for (int i = 0; i < arranged_rows; i += arrange_threads / 32) {
        const int r = i + warp();
        const int64_t row = first + r < last ? first + r : last;
        if constexpr (is_plain<STRATA_FORMAT>) {
            using F = STRATA_FORMAT;
            float value = beyond;
            if (column < cols) {
                value = F::value(reinterpret_cast<const typename F::Raw*>(data)[row * cols + column]);
                if (F::scaled) value = value * plane[row / 128 * across + column / 128];
            }
            kept[lane() * (arranged_rows + 1) + r] = value;
        }
    }
    barrier();
    const uint32_t each = static_cast<uint32_t>(tile);
    STRATA_UNROLL
    for (int part = 0; part < arranged_rows; part += 32) {
        if (first + part > last) return;
        const uint32_t row = static_cast<uint32_t>(first + part), group = row / each;
        STRATA_UNROLL
        for (int i = 0; i < 32; i += arrange_threads / 32) {
            const int l = i + warp();
            const int64_t place = (group * int64_t{32} + turn_of(l)) * of_lane + block_x();
            to[place * tile + row % each + lane()] = kept[l * (arranged_rows + 1) + part + lane()];
        }
    }
}

}  // namespace strata::STRATA_ISA
