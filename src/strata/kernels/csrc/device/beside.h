// What an operation leaves beside the float32 rows that it makes: the same rows, quantised for the products that read
// them.
#pragma once

#include "quantised_rows.h"

namespace strata::STRATA_ISA {

// A group's 32 lanes hold block `block` of a row, a value each.
template <int sub>
STRATA_INLINE void put_lane(uint8_t* row, uint32_t block, int32_t code, float d) {
    int32_t sum = code;
    STRATA_UNROLL
    for (int mask = 1; mask < sub; mask <<= 1) sum += shuffle_xor(sum, mask);
    const uint32_t within = static_cast<uint32_t>(lane()) % sub, index = block * (32 / sub) + static_cast<uint32_t>(lane()) / sub;
    uint8_t* const place = row + place_of<sub>(static_cast<int>(index));
    place[512 * (within / 16) + within % 16] = static_cast<uint8_t>(code);
    if (within == 0) put_scale<sub>(place, d, sum);
}

// Where an operation leaves the rows that it makes, quantised for the products that read them: both layouts, or
// nothing.
struct Beside {
    uint8_t *by32, *by16;
    int64_t cols;

    // A group's value `x` of each lane, in column `column` of row `row`, a multiple of 32 in lane 0.
    STRATA_METHOD void put(float x, int64_t row, int64_t column) const {
        if (!by32) return;
        float d;
        const int32_t code = quantise_lane(x, d);
        const uint32_t block = static_cast<uint32_t>(column) / 32;
        put_lane<32>(by32 + row * quantised_bytes<32>(cols), block, code, d);
        put_lane<16>(by16 + row * quantised_bytes<16>(cols), block, code, d);
    }

    // Four values of each lane of a group, from column `column` on, a multiple of 32 in every eighth lane; `here`:
    // eight lanes alike, whether they hold any.
    STRATA_METHOD void put_four(const float (&x)[4], int64_t row, int column, bool here) const {
        quantise_words(x, here ? by32 + row * quantised_bytes<32>(cols) : nullptr,
                       here ? by16 + row * quantised_bytes<16>(cols) : nullptr, column / 32);
    }
};

}  // namespace strata::STRATA_ISA
