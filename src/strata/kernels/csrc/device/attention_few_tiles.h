// What a thread block of attention of a few rows reads, tile by tile: places of entries, and tiles that are asked for
// ahead.
#pragma once

#include "attention_finish.h"
#include "attention_ring.h"

namespace strata::STRATA_ISA {

// What a thread block reads and where it keeps it.
struct Few {
    Entries keys, values;
#if defined(ATTENTION_DIM)  // constants wherever this struct lies
    STRATA_METHOD Shape key_shape() const { ATTENTION_SHAPE(shape, KEYS); return shape; }
    STRATA_METHOD Shape value_shape() const { ATTENTION_SHAPE(shape, VALUES); return shape; }
#else
    Shape shape_of_keys, shape_of_values;
    STRATA_METHOD Shape key_shape() const { return shape_of_keys; }
    STRATA_METHOD Shape value_shape() const { return shape_of_values; }
#endif
    Unit unit;
    Seen seen;
    int most;  // entries that one of the unit's rows sees
    uint8_t* ring;
    uint64_t* arrivals;
    int32_t *key_places, *value_places;  // [256], of the entries of a block of positions
    float* weights;                   // [8][kPitch]
    float *key_scales, *value_scales;  // [256][dim / 32], of int8
};

STRATA_INLINE int tiles_of(const Shape& shape, int count) { return (count + entries_of_tile(shape) - 1) / entries_of_tile(shape); }

// Tiles of a block of positions: those of keys come first.
STRATA_INLINE int all_tiles(const Few& work, int count) { return tiles_of(work.key_shape(), count) + tiles_of(work.value_shape(), count); }

// Entries of tile `tile` of `count` entries.
struct Range {
    bool keys;
    int first, count;
};

STRATA_INLINE Range range_of(const Few& work, int count, int tile) {
    const int of_keys = tiles_of(work.key_shape(), count);
    const bool keys = tile < of_keys;
    const int each = entries_of_tile(keys ? work.key_shape() : work.value_shape()), first = (keys ? tile : tile - of_keys) * each;
    return {keys, first, least(each, count - first)};
}

// Looks up where the entries of a block of positions lie, all at once: each look is a way to the second-level cache, or
// two.
STRATA_INLINE void find_places(const Few& work, int j0) {
    const int count = least(kBlock, work.most - j0);
    for (int i = thread_x(); i < count; i += kFewThreads) {
        work.key_places[i] = static_cast<int32_t>(place_of_entry(work.keys, work.key_shape(), j0 + i));
        work.value_places[i] = static_cast<int32_t>(place_of_entry(work.values, work.value_shape(), j0 + i));
    }
    barrier();
}

// The first group of lanes asks for a tile, number `turn` of all that the thread block reads.
STRATA_INLINE void ask_tile(const Few& work, int j0, int count, int tile, int turn) {
    if (warp() != 0) return;
    const Range range = range_of(work, count, tile);
    const int slot = turn % kRingSlots;
    uint8_t* const to = work.ring + slot * kRingBytes;
    const int32_t* const places = (range.keys ? work.key_places : work.value_places) + range.first;
    const Entries& entries = range.keys ? work.keys : work.values;
    const Shape shape = range.keys ? work.key_shape() : work.value_shape();
    ask_for(work.arrivals + slot, to, static_cast<const uint8_t*>(entries.data), entries.list != nullptr,
            shape.dim * value_bytes(shape), shape.page, places, j0 + range.first, range.count);
}

STRATA_INLINE const uint8_t* await_tile(const Few& work, int turn) {
    const int slot = turn % kRingSlots;
    landed(work.arrivals + slot, turn / kRingSlots);
    return work.ring + slot * kRingBytes;
}

// Behind tile `tile`: its slot is free for another.
STRATA_INLINE void next_tile(const Few& work, int j0, int count, int tile, int turn) {
    if (tile + kRingSlots >= all_tiles(work, count)) return;
    barrier();  // the slot is used up
    ask_tile(work, j0, count, tile + kRingSlots, turn + kRingSlots);
}

// Asks for the first tiles of a block of positions, from tile `from` on, as far as their entries lie below `end`; how
// many were asked for by then.
STRATA_INLINE int ask_first(const Few& work, int j0, int from, int end, int turn) {
    const int count = least(kBlock, work.most - j0), tiles = least(kRingSlots, all_tiles(work, count));
    int tile = from;
    KEEP_ROLLED
    for (; tile < tiles; ++tile) {
        const Range range = range_of(work, count, tile);
        if (j0 + range.first + range.count > end) break;
        ask_tile(work, j0, count, tile, turn + tile);
    }
    return tile;
}

}  // namespace strata::STRATA_ISA
