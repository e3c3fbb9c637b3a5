// Which tiles of a product of many rows a block does. A unit is a tile of rows of x with one of the tiles of rows of
// the weight; the blocks of a launch take units in turn, and the stages of a unit's operands arrive while earlier
// stages, of the unit before perhaps, are computed.
#pragma once

#include "bytes.h"
#include "expert_table.h"
#include "prompt_layout.h"

namespace strata::STRATA_ISA {

// One launch's work. Of a single matrix: `tiles` null. Of experts first_expert and following: their tiles are those
// from tile_starts[first_expert] on, and pairs[first + i] is the pair (row, rank) of row i of a tile.
struct PromptWork {
    const RowsTile* tiles;
    const int32_t* pairs;
    const ExpertEntry* table;
    int32_t begin, units;  // the first of the experts' tiles; tiles of rows of x times those of the weight
    int32_t across;        // tiles of rows of the weight
    int32_t rows;          // of x
    int32_t kind, format;  // of the experts' matrices; a negative format: all have the same
    int32_t most;          // rows of a tile

    STRATA_METHOD RowsTile tile_of(int unit) const {
        const int index = static_cast<int>(static_cast<uint32_t>(unit) / static_cast<uint32_t>(across));
        if (tiles) return tiles[begin + index];
        const int32_t first = index * most, left = rows - first;
        return {0, first, left < most ? left : most, first / record_rows};
    }

    // Tile of the weight's rows.
    STRATA_METHOD int line_of(int unit) const {
        return static_cast<int>(static_cast<uint32_t>(unit) % static_cast<uint32_t>(across));
    }

    STRATA_METHOD bool has(int unit) const { return format < 0 || format_of(table[tile_of(unit).expert], kind) == format; }

    // The first unit of this launch from `unit` on, in steps of `stride`.
    STRATA_METHOD int find(int unit, int stride) const {
        while (unit < units && !has(unit)) unit += stride;
        return unit;
    }

    // Row of the result of row i of a tile.
    STRATA_METHOD int32_t result_of(const RowsTile& tile, int i) const {
        return tiles ? pairs[tile.first + i] : tile.first + i;
    }
};

STRATA_INLINE PromptWork prompt_work(const RowsTile* tiles, const int32_t* tile_starts, const int32_t* pairs,
                                     const ExpertEntry* table, int64_t first_expert, int64_t experts, int64_t across,
                                     int64_t rows, int64_t kind, int64_t format, int32_t most) {
    const int32_t begin = tiles ? tile_starts[first_expert] : 0;
    const int32_t count = tiles ? tile_starts[first_expert + experts] - begin : static_cast<int32_t>((rows + most - 1) / most);
    const int32_t wide = static_cast<int32_t>(across);
    return {tiles, pairs, table, begin, count * wide, wide, static_cast<int32_t>(rows), static_cast<int32_t>(kind),
            static_cast<int32_t>(format), most};
}

}  // namespace strata::STRATA_ISA
