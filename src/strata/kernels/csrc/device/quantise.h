// docs/numerics.md 1.1: a group of 32 lanes quantises a block of 32 values, one a lane.
#pragma once

#include "device.h"

#include "../activation.h"

namespace strata::STRATA_ISA {

// NaN when the largest of the block's values is not finite.
STRATA_INLINE float scale_of_block(uint32_t largest) {
    return largest < 0x7f800000u ? float_of_bits(largest) / 127.0f : float_of_bits(0x7fc00000u);
}

STRATA_INLINE int32_t code_of(float x, float d) {
    const bool usable = d > 0.0f;
    float ratio = round_even((usable ? x : 0.0f) / (usable ? d : 1.0f));
    ratio = ratio < -127.0f ? -127.0f : ratio;
    ratio = ratio > 127.0f ? 127.0f : ratio;
    return static_cast<int32_t>(ratio);
}

// The code of this lane's value; the block's scale, in every lane, goes to `d`: NaN when a value is not finite.
STRATA_INLINE int32_t quantise_lane(float x, float& d) {
    uint32_t largest = bits_of_float(x) & 0x7fffffffu;
    for (int mask = 16; mask > 0; mask >>= 1) {
        const uint32_t other = shuffle_xor(largest, mask);
        largest = other > largest ? other : largest;
    }
    d = scale_of_block(largest);
    return code_of(x, d);
}

// The same by eight lanes for each block, four values each.
STRATA_INLINE uint32_t quantise_four(const float (&x)[4], float& d) {
    uint32_t largest = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32_t size = bits_of_float(x[i]) & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    for (int mask = 4; mask > 0; mask >>= 1) {
        const uint32_t other = shuffle_xor(largest, mask);
        largest = other > largest ? other : largest;
    }
    d = scale_of_block(largest);
    uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) codes |= (static_cast<uint32_t>(code_of(x[i], d)) & 255) << 8 * i;
    return codes;
}

}  // namespace strata::STRATA_ISA
