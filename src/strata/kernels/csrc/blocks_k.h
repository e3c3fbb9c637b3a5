// The k-quants: blocks.h says what a struct has, and quant/decode_k.py what its bytes are.
#pragma once

#include "numbers.h"

namespace strata::STRATA_ISA {

struct Q2_K {
    static constexpr int block = 256, bytes = 84, sub = 16, offset = 0;
    static constexpr bool minima = true;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        for (int i = 0; i < 256; ++i) codes[i] = b[16 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
        const float d = half_to_float(read16(b + 80)), dmin = half_to_float(read16(b + 82));
        for (int s = 0; s < 16; ++s) {
            scale[s] = d * static_cast<float>(b[s] & 15);
            minimum[s] = dmin * static_cast<float>(b[s] >> 4);
        }
    }
};

struct Q3_K {
    static constexpr int block = 256, bytes = 110, sub = 16, offset = 4;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        for (int i = 0; i < 256; ++i)
            codes[i] = static_cast<uint8_t>((b[32 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3) |
                                            (b[i % 32] >> i / 32 & 1) << 2);
        const float d = half_to_float(read16(b + 108));
        for (int s = 0; s < 16; ++s) {
            const int low = b[96 + s % 8] >> 4 * (s / 8) & 15, high = b[104 + s % 4] >> 2 * (s / 4) & 3;
            scale[s] = d * static_cast<float>((low | high << 4) - 32);
        }
    }
};

// The 12 bytes of Q4_K and Q5_K: 8 six-bit scales, 8 six-bit minima.
STRATA_INLINE void k_scales(const uint8_t* b, float d, float dmin, float* scale, float* minimum) {
    for (int j = 0; j < 4; ++j) {
        scale[j] = d * static_cast<float>(b[j] & 63);
        minimum[j] = dmin * static_cast<float>(b[j + 4] & 63);
        scale[j + 4] = d * static_cast<float>((b[j + 8] & 15) | b[j] >> 6 << 4);
        minimum[j + 4] = dmin * static_cast<float>(b[j + 8] >> 4 | b[j + 4] >> 6 << 4);
    }
}

struct Q4_K {
    static constexpr int block = 256, bytes = 144, sub = 32, offset = 0;
    static constexpr bool minima = true;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        for (int c = 0; c < 4; ++c) nibbles(b + 16 + 32 * c, 32, codes + 64 * c);
        k_scales(b + 4, half_to_float(read16(b)), half_to_float(read16(b + 2)), scale, minimum);
    }
};

struct Q5_K {
    static constexpr int block = 256, bytes = 176, sub = 32, offset = 0;
    static constexpr bool minima = true;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        for (int c = 0; c < 4; ++c) nibbles(b + 48 + 32 * c, 32, codes + 64 * c);
        for (int i = 0; i < 256; ++i) codes[i] |= (b[16 + i % 32] >> i / 32 & 1) << 4;
        k_scales(b + 4, half_to_float(read16(b)), half_to_float(read16(b + 2)), scale, minimum);
    }
};

struct Q6_K {
    static constexpr int block = 256, bytes = 210, sub = 16, offset = 32;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        for (int h = 0; h < 2; ++h) nibbles(b + 64 * h, 64, codes + 128 * h);
        for (int i = 0; i < 256; ++i) codes[i] |= (b[128 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3) << 4;
        const float d = half_to_float(read16(b + 208));
        for (int s = 0; s < 16; ++s) scale[s] = d * static_cast<float>(static_cast<int8_t>(b[192 + s]));
    }
};

}  // namespace strata::STRATA_ISA
