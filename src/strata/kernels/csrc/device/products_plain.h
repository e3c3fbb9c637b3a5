// Weights that are plain floats: as they lie in memory, and each converted exactly to float32.
#pragma once

#include "bytes.h"

namespace strata::STRATA_ISA {

struct F32 {
    using Raw = float;
    static constexpr int bytes = 4;
    static constexpr bool scaled = false;
    STRATA_INLINE float value(Raw raw) { return raw; }
};

struct F16 {
    using Raw = uint16_t;
    static constexpr int bytes = 2;
    static constexpr bool scaled = false;
    STRATA_INLINE float value(Raw raw) { return half_to_float(raw); }
};

struct BF16 {
    using Raw = uint16_t;
    static constexpr int bytes = 2;
    static constexpr bool scaled = false;
    STRATA_INLINE float value(Raw raw) { return float_of_bits(static_cast<uint32_t>(raw) << 16); }
};

struct FP8 {
    using Raw = uint8_t;
    static constexpr int bytes = 1;
    static constexpr bool scaled = false;
    STRATA_INLINE float value(Raw raw) { return e4m3_to_float(raw); }
};

// With a float32 scale for each 128 x 128 values.
struct FP8_BLOCK {
    using Raw = uint8_t;
    static constexpr int bytes = 1;
    static constexpr bool scaled = true;
    STRATA_INLINE float value(Raw raw) { return e4m3_to_float(raw); }
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
