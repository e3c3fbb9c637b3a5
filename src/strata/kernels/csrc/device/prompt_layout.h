// How products of many rows see their operands (kernels/linear/prompt.py makes the tables).
//
// The lane rule (docs/numerics.md 1.4, 1.5) adds the sub-blocks of a lane in order and the lanes by a tree. Here one
// thread adds everything for an output, so it goes through the tree depth first: lanes 0, 16, 8, 24, 4, .. and all
// sub-blocks of a lane before the next lane. A sum waits at each of the five levels for its partner. Codes and scales
// lie in that order, "place" by place, a stage of 128 codes after the other. A table of places is int64: the place of
// each sub-block. What lies beyond the last place is never used.
//
// Rows of x are quantised as rows (codes int8 [rows][stages * 128]; d, and m, the negated sums of codes, float32
// [rows][places]). What the products read, of x and of a weight, are records, one for 64 rows and a stage, so that it
// comes to shared memory in one piece as it is used there. [tiles of 64 rows][stages] of:
//
//     codes   int8 [64][128], swizzled (matrix.h)
//     scale   float32 [places of a stage][64]: d of x
//     minimum the same: m of x, always; of a weight if its format has minima
//
// The order of 64 scales is one in which a lane of the matrix unit's result finds what it needs side by side.
#pragma once

#include "device.h"

namespace strata::STRATA_ISA {

constexpr int stage_codes = 128;  // of a row that arrive together
constexpr int record_rows = 64;

STRATA_INLINE int64_t stages_of(int64_t cols) { return (cols + stage_codes - 1) / stage_codes; }

// When lane `l` has its turn: the bits of its number in reverse. So also the lane whose turn it is.
STRATA_INLINE int turn_of(int l) { return (l & 1) << 4 | (l & 2) << 2 | (l & 4) | (l & 8) >> 2 | (l & 16) >> 4; }

// Where row `row` of the 64 of a weight lies among their scales: rows 16 i + 2 t + {0, 1, 8, 9} are neighbours.
STRATA_INLINE int scale_place(int row) { return row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2; }

// The same of 64 rows of x: rows 32 i + t + {0, 8, 16, 24} are neighbours.
STRATA_INLINE int row_scale_place(int row) { return row / 32 * 32 + row % 8 * 4 + row % 32 / 8; }

template <int sub, bool minima>
struct PromptRecord {
    static constexpr int steps = stage_codes / sub, line = record_rows * 4;  // places; bytes of one place's scales
    static constexpr int scale = record_rows * stage_codes, minimum = scale + steps * line;
    static constexpr int bytes = minimum + (minima ? steps * line : 0);
};

// A tile of rows of x: the expert's, or 0 of a single matrix. `packed`: which 64 rows of the records are its first.
struct RowsTile {
    int32_t expert, first, count, packed;
};

}  // namespace strata::STRATA_ISA
