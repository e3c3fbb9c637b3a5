// The block formats: bytes -> codes, scales and minima, one struct per format. Plain C++ without the standard library,
// so that a device compiler can read it too (it defines STRATA_ISA, STRATA_INLINE and STRATA_TABLE itself).
//
//     block, bytes   values and bytes of a block
//     sub            values that share a scale
//     offset         codes are stored unsigned: code = w_int + offset
//     minima         whether a value is scale * w_int - minimum
//     decode(b, codes, scale, minimum)
//                    codes [block] in order, scale [block / sub], minimum the same (untouched without minima)
//
// Layouts and the written order of scales: quant/decode_{legacy,k,iq}.py, which these functions must equal to the bit.
#pragma once

#include <stdint.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#ifndef STRATA_INLINE
#define STRATA_INLINE static inline
#endif

#include "grids.h"

namespace strata::STRATA_ISA {

STRATA_INLINE float float_of_bits(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

STRATA_INLINE uint32_t bits_of_float(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}

STRATA_INLINE uint32_t read16(const uint8_t* b) { return b[0] | b[1] << 8; }
STRATA_INLINE uint32_t read32(const uint8_t* b) { return read16(b) | read16(b + 2) << 16; }

STRATA_INLINE float half_to_float(uint32_t half) {
#if defined(__F16C__)
    return _cvtsh_ss(static_cast<unsigned short>(half));
#elif defined(STRATA_HALF_TO_FLOAT)  // a device compiler's one instruction
    STRATA_HALF_TO_FLOAT(half);
#else
    const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0) return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    const float small = static_cast<float>(mantissa) * float_of_bits(0x33800000u);  // 2^-24
    return float_of_bits(sign | bits_of_float(small));
#endif
}

// float8_e4m3fn: bias 7, subnormals, no infinities, 0x7f and 0xff are NaN.
STRATA_INLINE float e4m3_to_float(uint32_t code) {
    const uint32_t sign = (code & 128) << 24, exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 127) == 127) return float_of_bits(sign | 0x7fc00000u);
    if (exponent != 0) return float_of_bits(sign | (exponent + 120) << 23 | mantissa << 20);
    const float small = static_cast<float>(mantissa) * float_of_bits(0x3b000000u);  // 2^-9
    return float_of_bits(sign | bits_of_float(small));
}

// GGML's unsigned form: bit 7 is ignored and the NaN code is 0.
STRATA_INLINE float ue4m3_to_float(uint32_t code) {
    return (code & 127) == 127 ? 0.0f : e4m3_to_float(code & 127);
}

// 2^(e - 128), subnormal for e = 0 and 1.
STRATA_INLINE float e8m0_to_half_float(uint32_t e) {
    return float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

STRATA_TABLE int8_t non_linear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
STRATA_TABLE int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

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

// Low nibbles of `count` bytes, then the high ones.
STRATA_INLINE void nibbles(const uint8_t* b, int count, uint8_t* codes) {
    for (int i = 0; i < count; ++i) {
        codes[i] = b[i] & 15;
        codes[i + count] = b[i] >> 4;
    }
}

struct Q4_0 {
    static constexpr int block = 32, bytes = 18, sub = 32, offset = 8;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        nibbles(b + 2, 16, codes);
        scale[0] = half_to_float(read16(b));
    }
};

struct Q4_1 {
    static constexpr int block = 32, bytes = 20, sub = 32, offset = 0;
    static constexpr bool minima = true;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        nibbles(b + 4, 16, codes);
        scale[0] = half_to_float(read16(b));
        minimum[0] = -half_to_float(read16(b + 2));
    }
};

struct Q5_0 {
    static constexpr int block = 32, bytes = 22, sub = 32, offset = 16;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        nibbles(b + 6, 16, codes);
        const uint32_t fifth = read32(b + 2);
        for (int i = 0; i < 32; ++i) codes[i] |= (fifth >> i & 1) << 4;
        scale[0] = half_to_float(read16(b));
    }
};

struct Q5_1 {
    static constexpr int block = 32, bytes = 24, sub = 32, offset = 0;
    static constexpr bool minima = true;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        nibbles(b + 8, 16, codes);
        const uint32_t fifth = read32(b + 4);
        for (int i = 0; i < 32; ++i) codes[i] |= (fifth >> i & 1) << 4;
        scale[0] = half_to_float(read16(b));
        minimum[0] = -half_to_float(read16(b + 2));
    }
};

struct Q8_0 {
    static constexpr int block = 32, bytes = 34, sub = 32, offset = 128;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        for (int i = 0; i < 32; ++i) codes[i] = b[2 + i] ^ 128;
        scale[0] = half_to_float(read16(b));
    }
};

struct Q2_0 {
    static constexpr int block = 64, bytes = 18, sub = 32, offset = 1;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        for (int i = 0; i < 64; ++i) codes[i] = b[2 + i / 4] >> 2 * (i % 4) & 3;
        scale[0] = scale[1] = half_to_float(read16(b));
    }
};

struct IQ4_NL {
    static constexpr int block = 32, bytes = 18, sub = 32, offset = 128;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        nibbles(b + 2, 16, codes);
        for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(non_linear[codes[i]] + 128);
        scale[0] = half_to_float(read16(b));
    }
};

struct MXFP4 {
    static constexpr int block = 32, bytes = 17, sub = 32, offset = 12;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        nibbles(b + 1, 16, codes);
        for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(e2m1_doubled[codes[i]] + 12);
        scale[0] = e8m0_to_half_float(b[0]);
    }
};

struct NVFP4 {
    static constexpr int block = 64, bytes = 36, sub = 16, offset = 12;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        for (int s = 0; s < 4; ++s) {
            nibbles(b + 4 + 8 * s, 8, codes + 16 * s);
            scale[s] = 0.5f * ue4m3_to_float(b[s]);
        }
        for (int i = 0; i < 64; ++i) codes[i] = static_cast<uint8_t>(e2m1_doubled[codes[i]] + 12);
    }
};

// Pairs of E2M1 values; the scales lie in the weight's second plane (products_rows.h reads them).
struct NVFP4_PAIRS {
    static constexpr int block = 32, bytes = 16, sub = 16, offset = 12;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(e2m1_doubled[b[i / 2] >> 4 * (i % 2) & 15] + 12);
        scale[0] = scale[1] = 0.0f;
    }
};

struct TQ2_0 {
    static constexpr int block = 256, bytes = 66, sub = 32, offset = 1;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        for (int i = 0; i < 256; ++i) codes[i] = b[i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
        for (int s = 0; s < 8; ++s) scale[s] = half_to_float(read16(b + 64));
    }
};

struct TQ1_0 {
    static constexpr int block = 256, bytes = 54, sub = 32, offset = 1;
    static constexpr bool minima = false;
    STRATA_INLINE uint8_t* digits(const uint8_t* b, int count, int digits, uint8_t* codes) {
        for (int n = 0, power = 1; n < digits; ++n, power *= 3)
            for (int i = 0; i < count; ++i) *codes++ = static_cast<uint8_t>((b[i] * power & 255) * 3 >> 8);
        return codes;
    }
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        digits(b + 48, 4, 4, digits(b + 32, 16, 5, digits(b, 32, 5, codes)));
        for (int s = 0; s < 8; ++s) scale[s] = half_to_float(read16(b + 52));
    }
};

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

struct IQ4_XS {
    static constexpr int block = 256, bytes = 136, sub = 32, offset = 128;
    static constexpr bool minima = false;
    STRATA_INLINE void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d = half_to_float(read16(b));
        const uint32_t high = read16(b + 2);
        for (int s = 0; s < 8; ++s) {
            nibbles(b + 8 + 16 * s, 16, codes + 32 * s);
            const int small = (b[4 + s / 2] >> 4 * (s % 2) & 15) | (high >> 2 * s & 3) << 4;
            scale[s] = d * static_cast<float>(small - 32);
        }
        for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(non_linear[codes[i]] + 128);
    }
};

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
                signed_values(grid_iq3_xxs[b[2 + 8 * s + g]], 4, signs_of_index(word >> 7 * (g / 2) & 127) >> 4 * (g % 2),
                              offset, codes + 32 * s + 4 * g);
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
