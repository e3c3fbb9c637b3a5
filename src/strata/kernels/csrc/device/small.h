// Small things that several kernels need.
#pragma once

#include "device.h"
// After device.h, which says how functions are marked.
#include "../activation.h"

// Loops that a GPU's compiler has to unroll, or must not; the host's decides for itself.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define UNROLL _Pragma("unroll")
#define STRATA_PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(count) STRATA_PRAGMA(unroll count)
#define KEEP_ROLLED _Pragma("unroll 1")
#else
#define UNROLL
#define UNROLL_BY(count)
#define KEEP_ROLLED
#endif

// A function of which a kernel holds one copy for all that call it: code comes anew for every launch, 0.1 us a KB. What
// it is given should fit into registers.
#if defined(__CUDACC_RTC__)
#define STRATA_ONE_COPY __noinline__ static __device__
#else
#define STRATA_ONE_COPY STRATA_INLINE
#endif

namespace strata::STRATA_ISA {

STRATA_INLINE int least(int a, int b) { return a < b ? a : b; }
STRATA_INLINE int most(int a, int b) { return a > b ? a : b; }
STRATA_INLINE float infinity() { return float_of_bits(0x7f800000u); }

#if defined(__CUDACC__) || defined(__HIPCC__)
STRATA_INLINE int count_bits(uint32_t bits) { return __popc(bits); }
#else
STRATA_INLINE int count_bits(uint32_t bits) {
    bits = bits - (bits >> 1 & 0x55555555u);
    bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
    return static_cast<int>(((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24);
}
#endif

// The largest of the 32 lanes, in each; which of +0 and -0 does not matter, and a NaN is passed over.
STRATA_INLINE float lane_largest(float v) {
    for (int mask = 16; mask > 0; mask >>= 1) {
        const float other = shuffle_xor(v, mask);
        v = other > v ? other : v;
    }
    return v;
}

// Sums of N values over the lanes in the order of the lane rule's tree: lane l gets that of value l / (32 / N).
template <int N, int mask>
STRATA_INLINE float fold(float* v) {
    if constexpr (mask == 0) {
        return v[0];
    } else if constexpr (N == 1) {
        v[0] = v[0] + shuffle_xor(v[0], mask);
        return fold<1, mask / 2>(v);
    } else {
        const bool upper = (lane() & mask) != 0;
        UNROLL
        for (int i = 0; i < N / 2; ++i) {
            const float kept = upper ? v[i + N / 2] : v[i], sent = upper ? v[i] : v[i + N / 2];
            v[i] = kept + shuffle_xor(sent, mask);
        }
        return fold<N / 2, mask / 2>(v);
    }
}

}  // namespace strata::STRATA_ISA
