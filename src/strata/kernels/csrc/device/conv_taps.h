// A causal convolution of four taps.
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

constexpr int kTaps = 4;

// The last value of `window` is the newest.
STRATA_INLINE float convolved(const float (&taps)[kTaps], const float (&window)[kTaps]) {
    float acc = 0.0f;
    UNROLL
    for (int k = 0; k < kTaps; ++k) acc = fma(taps[k], window[k], acc);
    return acc;
}

}  // namespace strata::STRATA_ISA
