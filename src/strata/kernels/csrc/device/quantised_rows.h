// Activations as the products read them. A row of K values is cut into steps of 32 sub-blocks, one for each lane, and a
// step is one record:
//
//     q [sub / 16][32][16]   int8: half h of lane l's sub-block in 16 bytes, so that a group reads 512 bytes at once
//     d [32]                 float32, the scale of the block of 32 that the sub-block lies in
//     m [32]                 int32, the sum of the sub-block's q
//
// The last record of a row is filled only as far as there are sub-blocks.
#pragma once

#include "quantise.h"

namespace strata::STRATA_ISA {

template <int sub>
struct Record {
    static constexpr int values = 32 * sub, d = values, m = d + 128, bytes = m + 128;
};

// Records of a row of K values.
template <int sub>
STRATA_INLINE int64_t records_of(int64_t cols) { return (cols + Record<sub>::values - 1) / Record<sub>::values; }

// Lane l holds code l of block `block` of a row of records, whose scale is d.
template <int sub>
STRATA_INLINE void put_block(uint8_t* row, int64_t block, int32_t code, float d) {
    int32_t sum = code;
    for (int mask = sub / 2; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask);
    const int64_t index = block * (32 / sub) + lane() / sub;  // of the sub-block
    uint8_t* record = row + index / 32 * Record<sub>::bytes;
    const int place = static_cast<int>(index % 32), value = lane() % sub;
    record[value / 16 * 512 + place * 16 + value % 16] = static_cast<uint8_t>(code);
    if (value == 0) {
        *reinterpret_cast<float*>(record + Record<sub>::d + 4 * place) = d;
        *reinterpret_cast<int32_t*>(record + Record<sub>::m + 4 * place) = sum;
    }
}

// A group of lanes quantises block `block` of row `row` into the layouts that are wanted (null: not).
STRATA_INLINE void quantise_block(float x, uint8_t* by32, uint8_t* by16, int64_t cols, int64_t row, int64_t block) {
    float d;
    const int32_t code = quantise_lane(x, d);
    if (by32) put_block<32>(by32 + row * records_of<32>(cols) * Record<32>::bytes, block, code, d);
    if (by16) put_block<16>(by16 + row * records_of<16>(cols) * Record<16>::bytes, block, code, d);
}

}  // namespace strata::STRATA_ISA
