// Tiles of a cache's entries on their way to shared memory: a ring of slots, which one group of lanes fills by bulk
// copies where the processor can, piece by piece of what lies in a row. Tiles are numbered through all that a thread
// block reads.
#pragma once

#include "arrivals.h"
#include "attention_tile.h"

namespace strata::STRATA_ISA {

#ifndef STRATA_SLOT_BYTES
#define STRATA_SLOT_BYTES (32 << 10)  // less where a block has less shared memory (kernels/shared_memory.py)
#endif
constexpr int kRingSlots = 3, kRingBytes = STRATA_SLOT_BYTES;  // of a slot

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// A lane's copies to one tile: all bytes are promised before the first is asked for. Every lane of the group promises
// once.
STRATA_INLINE void promise(uint64_t* arrival, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(arrival)), "r"(bytes) : "memory");
}
STRATA_INLINE void copy_piece(uint64_t* arrival, uint8_t* to, const uint8_t* from, int bytes) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_place(to)),
                 "l"(from), "r"(bytes), "r"(shared_place(arrival))
                 : "memory");
}
// All threads of the block: the tile whose turn of the slot this is, its 0th, 1st, .., is there.
STRATA_INLINE void landed(uint64_t* arrival, int turn) { arrived<0>(arrival, turn); }

#else

STRATA_INLINE void promise(uint64_t*, int) {}
STRATA_INLINE void copy_piece(uint64_t*, uint8_t* to, const uint8_t* from, int bytes) {
    for (int i = 0; i < bytes; i += 16) copy16(to + i, from + i);
}
STRATA_INLINE void landed(uint64_t*, int) {
    commit_copies();
    wait_for_copies<0>();
    barrier();
}

#endif

STRATA_INLINE int value_bytes(const Shape& shape) { return shape.type == kKvFloat ? 4 : shape.type == kKvHalf ? 2 : 1; }

// Entries of a tile, a multiple of 8.
STRATA_INLINE int entries_of_tile(const Shape& shape) {
    return least(kBlock, kRingBytes / (shape.dim * value_bytes(shape)) / 8 * 8);
}

// How many bits behind this lane's are 0 before the next that is 1, up to bit 31.
STRATA_INLINE int zeros_behind(uint32_t bits) {
    const uint32_t behind = lane() < 31 ? bits >> (lane() + 1) : 0, lowest = behind & (0u - behind);
    if (lowest == 0) return 31 - lane();
    return static_cast<int>(bits_of_float(static_cast<float>(lowest)) >> 23) - 127;  // the exponent of a power of two
}

// Listed entries: those that lie one behind the other come in one copy, of 32 at most.
STRATA_INLINE void copy_listed(uint64_t* arrival, uint8_t* slot, const uint8_t* plane, const int32_t* places, int count, int row) {
    KEEP_ROLLED
    for (int first = 0; first < count; first += 32) {
        const int i = first + lane();
        const int32_t place = i < count ? places[i] : -2, before = lane() > 0 && i < count ? places[i - 1] : -2;
        const bool begins = i >= count || lane() == 0 || place != before + 1;
        const int length = 1 + zeros_behind(ballot(begins));
        if (begins && i < count) copy_piece(arrival, slot + i * row, plane + static_cast<int64_t>(place) * row, length * row);
    }
}

// Asks for entries first .. first + count - 1, one after the other in the slot: by one group of lanes. What lies in a
// page, of `page` entries of `row` bytes, comes in one copy. places[i]: where entry first + i is among all that the plane
// holds.
STRATA_ONE_COPY void ask_for(uint64_t* arrival, uint8_t* slot, const uint8_t* plane, bool listed, int row, int page,
                             const int32_t* places, int first, int count) {
    promise(arrival, lane() == 0 ? most(0, count) * row : 0);
    sync_warp();  // all bytes are promised
    if (listed) return copy_listed(arrival, slot, plane, places, count, row);
    const int from_piece = static_cast<int>(static_cast<uint32_t>(first) / static_cast<uint32_t>(page));
    const int behind = static_cast<int>(static_cast<uint32_t>(first + count - 1) / static_cast<uint32_t>(page));
    const int pieces = count > 0 ? behind - from_piece + 1 : 0;
    KEEP_ROLLED
    for (int p = lane(); p < pieces; p += 32) {
        const int begin = most(first, (from_piece + p) * page), end = least(first + count, (from_piece + p + 1) * page);
        const uint8_t* const at = plane + static_cast<int64_t>(places[begin - first]) * row;
        copy_piece(arrival, slot + (begin - first) * row, at, (end - begin) * row);
    }
}

// Value `at` of a tile. `scales`, of int8, has one for each 32 values.
STRATA_INLINE float tile_value(const uint8_t* tile, const float* scales, const Shape& shape, int at) {
    if (shape.type == kKvFloat) return reinterpret_cast<const float*>(tile)[at];
    if (shape.type == kKvHalf) return float_of_bits(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(tile)[at]) << 16);
    return static_cast<float>(reinterpret_cast<const int8_t*>(tile)[at]) * scales[at / 32];
}

}  // namespace strata::STRATA_ISA
