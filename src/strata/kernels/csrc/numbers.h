// Numbers as files hold them: little-endian words, pairs of nibbles, and small floats as float32, exactly. Plain C++
// without the standard library, so that a device compiler can read it too (it defines STRATA_ISA, STRATA_INLINE and
// STRATA_TABLE itself).
#pragma once

#include <stdint.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#ifndef STRATA_INLINE
#define STRATA_INLINE static inline
#endif
#ifndef STRATA_TABLE
#define STRATA_TABLE static constexpr
#endif

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

// Low nibbles of `count` bytes, then the high ones.
STRATA_INLINE void nibbles(const uint8_t* b, int count, uint8_t* codes) {
    for (int i = 0; i < count; ++i) {
        codes[i] = b[i] & 15;
        codes[i + count] = b[i] >> 4;
    }
}

}  // namespace strata::STRATA_ISA
