// Activations as the products read them. A row of K values is cut into steps of 32 sub-blocks, one for each lane, and a
// step is one record:
//
//     q [sub / 16][32][16]   int8: half h of lane l's sub-block in 16 bytes, so that a group reads 512 bytes at once
//     d, m [32]              pairs of a float32, the scale of the block of 32 that the sub-block lies in, and an int32, the
//                            sum of the sub-block's q
//
// The last record of a row is filled only as far as there are sub-blocks.
#pragma once

#include "bytes.h"
#include "quantise.h"

namespace strata::STRATA_ISA {

template <int sub>
struct Record {
    static constexpr int values = 32 * sub, bytes = values + 256;
};

template <int sub>
STRATA_INLINE int64_t quantised_bytes(int64_t cols) {
    return (cols + Record<sub>::values - 1) / Record<sub>::values * Record<sub>::bytes;
}

template <int sub>
struct Quantised {
    uint32_t q[sub / 4];
    float d;
    int32_t m;
};

// Where a sub-block of a row lies: its codes, and its scale and sum. The sub-block 32 further lies Record::bytes further.
struct Place {
    const uint8_t *q, *dm;
};

// Sub-block `index` of a row; it may be below 0 when only a later one is read.
template <int sub>
STRATA_INLINE Place place_of(const uint8_t* row, int index) {
    const uint8_t* record = row + (index >> 5) * Record<sub>::bytes;
    return {record + 16 * (index & 31), record + Record<sub>::values + 8 * (index & 31)};
}

template <int sub>
STRATA_INLINE Quantised<sub> input(const Place& place, int records) {
    Quantised<sub> x;
    STRATA_UNROLL
    for (int h = 0; h < sub / 16; ++h) {
        const Words4 half = load16(place.q + records * Record<sub>::bytes + 512 * h);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) x.q[4 * h + j] = half.w[j];
    }
    const Words2 both = load8(place.dm + records * Record<sub>::bytes);
    x.d = float_of_bits(both.w[0]), x.m = static_cast<int32_t>(both.w[1]);
    return x;
}

// Eight lanes hold a block of 32 values, four each; the block is number `block` of a row. All lanes of a group
// take part, with blocks of their own; `row` null: they only take part.
template <int sub>
STRATA_INLINE void put_words(uint8_t* row, int64_t block, uint32_t codes, float d) {
    int32_t sum = dot4(static_cast<int32_t>(codes), 0x01010101, 0);
    STRATA_UNROLL
    for (int mask = 1; mask < sub / 4; mask <<= 1) sum += shuffle_xor(sum, mask);
    if (!row) return;
    const int word = lane() % 8, within = word % (sub / 4);
    const int64_t index = block * (32 / sub) + word / (sub / 4);
    uint8_t* const record = row + index / 32 * Record<sub>::bytes;
    *reinterpret_cast<uint32_t*>(record + 512 * (within / 4) + 16 * (index % 32) + 4 * (within % 4)) = codes;
    if (within == 0) {
        uint8_t* const to = record + Record<sub>::values + 8 * (index % 32);
        *reinterpret_cast<float*>(to) = d;
        *reinterpret_cast<int32_t*>(to + 4) = sum;
    }
}

// Quantises four blocks of 32 values of a row at once, eight lanes each, into the layouts that are wanted (null: not).
STRATA_INLINE void quantise_words(const float (&x)[4], uint8_t* row32, uint8_t* row16, int64_t block) {
    float d;
    const uint32_t codes = quantise_four(x, d);
    put_words<32>(row32, block, codes, d);
    put_words<16>(row16, block, codes, d);
}

}  // namespace strata::STRATA_ISA
