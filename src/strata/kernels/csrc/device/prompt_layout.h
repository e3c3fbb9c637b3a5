// How products of many rows see their operands (kernels/linear/prompt.py makes the tables).
//
// The lane rule (docs/numerics.md 1.4, 1.5) adds the sub-blocks of a lane in order and the lanes by a tree. Here one
// thread adds everything for an output, so it goes through the tree depth first: lanes 0, 16, 8, 24, 4, .. and all
// sub-blocks of a lane before the next lane. A sum waits at each of the five levels for its partner. Codes and scales
// lie in that order, "place" by place, in rows of whole stages of 128 codes:
//
//     codes   int8 [rows][stages * 128]
//     x       d float32 [rows][places], and m, the negated sums of codes, likewise
//     weight  scale (and minimum) float32 [rows / 64][places][64]: what a lane of the matrix unit's result needs
//             lies together in fours: row 16 i + 8 j + 2 t + e of the 64 is at 16 i + 4 t + 2 j + e
//
// What lies beyond the last place is never used. A table of places is int64: the place of each sub-block.
#pragma once

#include "device.h"

namespace strata::STRATA_ISA {

constexpr int stage_codes = 128;  // of a row that arrive together

STRATA_INLINE int64_t stages_of(int64_t cols) { return (cols + stage_codes - 1) / stage_codes; }

// When lane `l` has its turn: the bits of its number in reverse. So also the lane whose turn it is.
STRATA_INLINE int turn_of(int l) { return (l & 1) << 4 | (l & 2) << 2 | (l & 4) | (l & 8) >> 2 | (l & 16) >> 4; }

// Where row `row` of 64 rows lies among their scales.
STRATA_INLINE int scale_place(int row) { return row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2; }

// A tile of rows of x: the expert's, or 0 of a single matrix.
struct RowsTile {
    int32_t expert, first, count, unused;
};

constexpr int tile_lines = 64;  // rows of the weight that a block multiplies at once

}  // namespace strata::STRATA_ISA
