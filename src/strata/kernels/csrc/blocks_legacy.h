// The legacy formats, the two IQ4, the FP4 forms, Q2_0 and the ternary TQ types: blocks.h says what a struct has, and
// quant/decode_legacy.py what its bytes are.
#pragma once

#include "numbers.h"

namespace strata::STRATA_ISA {

STRATA_TABLE int8_t non_linear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
STRATA_TABLE int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

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

}  // namespace strata::STRATA_ISA
