// The i-quants whose values come from a grid: blocks.h says what a struct has, and quant/decode_iq.py what its bytes
// are.
#pragma once

#include "grids.h"
#include "numbers.h"

namespace strata::STRATA_ISA {

// A 7-bit sign index -> 8 sign bits, bit 7 being the parity of the others.
STRATA_INLINE uint32_t signs_of_index(uint32_t index) {
    uint32_t parity = index ^ index >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return index | (parity & 1) << 7;
}

// `count` grid values with the signs of `bits`, offset.
STRATA_INLINE void signed_values(const unsigned char* grid, int count, uint32_t bits, int offset, uint8_t* codes) {
    for (int i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(offset + (bits >> i & 1 ? -grid[i] : grid[i]));
}

struct IQ3_S {
    static constexpr int block = 256, bytes = 110, sub = 32, offset = 15;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d = half_to_float(read16(b));
        for (int g = 0; g < 64; ++g) {
            const uint32_t index = b[2 + g] | (b[66 + g / 8] >> g % 8 & 1) << 8;
            signed_values(grid_iq3_s[index], 4, b[74 + g / 2] >> 4 * (g % 2), offset, codes + 4 * g);
        }
        for (int s = 0; s < 8; ++s) scale[s] = d * static_cast<float>(1 + 2 * (b[106 + s / 2] >> 4 * (s % 2) & 15));
    }
};

struct IQ3_XXS {
    static constexpr int block = 256, bytes = 98, sub = 32, offset = 64;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d = half_to_float(read16(b));
        for (int s = 0; s < 8; ++s) {
            const uint32_t word = read32(b + 66 + 4 * s);
            for (int g = 0; g < 8; ++g)
                signed_values(grid_iq3_xxs[b[2 + 8 * s + g]], 4,
                              signs_of_index(word >> 7 * (g / 2) & 127) >> 4 * (g % 2), offset, codes + 32 * s + 4 * g);
            scale[s] = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
        }
    }
};

struct IQ2_XXS {
    static constexpr int block = 256, bytes = 66, sub = 32, offset = 64;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d = half_to_float(read16(b));
        for (int s = 0; s < 8; ++s) {
            const uint8_t* index = b + 2 + 8 * s;
            const uint32_t word = read32(index + 4);
            for (int g = 0; g < 4; ++g)
                signed_values(grid_iq2_xxs[index[g]], 8, signs_of_index(word >> 7 * g & 127), offset,
                              codes + 32 * s + 8 * g);
            scale[s] = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
        }
    }
};

struct IQ2_XS {
    static constexpr int block = 256, bytes = 74, sub = 16, offset = 64;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d = half_to_float(read16(b));
        for (int g = 0; g < 32; ++g) {
            const uint32_t word = read16(b + 2 + 2 * g);
            signed_values(grid_iq2_xs[word & 511], 8, signs_of_index(word >> 9), offset, codes + 8 * g);
        }
        for (int s = 0; s < 16; ++s)
            scale[s] = d * (0.5f + static_cast<float>(b[66 + s / 2] >> 4 * (s % 2) & 15)) * 0.25f;
    }
};

struct IQ2_S {
    static constexpr int block = 256, bytes = 82, sub = 16, offset = 64;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d = half_to_float(read16(b));
        for (int g = 0; g < 32; ++g) {
            const uint32_t index = b[2 + g] | (b[66 + g / 4] >> 2 * (g % 4) & 3) << 8;
            signed_values(grid_iq2_s[index], 8, b[34 + g], offset, codes + 8 * g);
        }
        for (int s = 0; s < 16; ++s)
            scale[s] = d * (0.5f + static_cast<float>(b[74 + s / 2] >> 4 * (s % 2) & 15)) * 0.25f;
    }
};

// Eight times (grid value +- 1/8).
STRATA_INLINE void iq1_values(uint32_t index, bool minus, int offset, uint8_t* codes) {
    for (int i = 0; i < 8; ++i) codes[i] = static_cast<uint8_t>(offset + 8 * grid_iq1[index][i] + (minus ? -1 : 1));
}

struct IQ1_S {
    static constexpr int block = 256, bytes = 50, sub = 32, offset = 16;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d = half_to_float(read16(b));
        for (int s = 0; s < 8; ++s) {
            const uint32_t head = read16(b + 34 + 2 * s);
            for (int g = 0; g < 4; ++g)
                iq1_values(b[2 + 4 * s + g] | (head >> 3 * g & 7) << 8, head >> 15, offset, codes + 32 * s + 8 * g);
            scale[s] = d * static_cast<float>(2 * (head >> 12 & 7) + 1) * 0.125f;
        }
    }
};

struct IQ1_M {
    static constexpr int block = 256, bytes = 56, sub = 16, offset = 16;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        uint32_t half = 0;
        for (int k = 0; k < 4; ++k) half |= read16(b + 48 + 2 * k) >> 12 << 4 * k;
        const float d = half_to_float(half);
        for (int g = 0; g < 32; ++g) {
            const uint32_t tail = b[32 + g / 2] >> 4 * (g % 2) & 15;
            iq1_values(b[g] | (tail & 7) << 8, tail >> 3, offset, codes + 8 * g);
        }
        for (int s = 0; s < 16; ++s)
            scale[s] = d * static_cast<float>(2 * (read16(b + 48 + 2 * (s / 4)) >> 3 * (s % 4) & 7) + 1) * 0.125f;
    }
};

}  // namespace strata::STRATA_ISA
