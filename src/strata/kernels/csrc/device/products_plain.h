// Weights that are plain floats: each converted exactly to float32.
#pragma once

#include "bytes.h"

namespace strata::STRATA_ISA {

struct F32 {
    static constexpr int bytes = 4;
    static constexpr bool scaled = false;
    STRATA_INLINE float value(const uint8_t* staged, uint32_t at) { return *reinterpret_cast<const float*>(staged + at); }
};

struct F16 {
    static constexpr int bytes = 2;
    static constexpr bool scaled = false;
    STRATA_INLINE float value(const uint8_t* staged, uint32_t at) {
        return half_to_float(*reinterpret_cast<const uint16_t*>(staged + at));
    }
};

struct BF16 {
    static constexpr int bytes = 2;
    static constexpr bool scaled = false;
    STRATA_INLINE float value(const uint8_t* staged, uint32_t at) {
        return float_of_bits(static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(staged + at)) << 16);
    }
};

struct FP8 {
    static constexpr int bytes = 1;
    static constexpr bool scaled = false;
    STRATA_INLINE float value(const uint8_t* staged, uint32_t at) { return e4m3_to_float(staged[at]); }
};

// With a float32 scale for each 128 x 128 values.
struct FP8_BLOCK {
    static constexpr int bytes = 1;
    static constexpr bool scaled = true;
    STRATA_INLINE float value(const uint8_t* staged, uint32_t at) { return e4m3_to_float(staged[at]); }
};

template <class F>
constexpr bool is_plain = false;
template <>
constexpr bool is_plain<F32> = true;
template <>
constexpr bool is_plain<F16> = true;
template <>
constexpr bool is_plain<BF16> = true;
template <>
constexpr bool is_plain<FP8> = true;
template <>
constexpr bool is_plain<FP8_BLOCK> = true;

}  // namespace strata::STRATA_ISA
