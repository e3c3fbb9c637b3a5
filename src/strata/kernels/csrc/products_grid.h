// IQ3_S and Q2_0 groups with AVX-512 byte permutes: no gathers (docs/numerics.md 5).
#pragma once

#include "products_fast.h"

#if STRATA_AVX512

namespace strata::STRATA_ISA {

// Where the group layout takes its bytes from: byte (s, b) of step j comes from byte `8 s + j` of 16 sub-blocks with 8
// bytes each. One index vector per step; add j to that of step 0.
static inline __m512i step_bytes(int step) {
    const __m512i qword = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
    const __m512i four = _mm512_shuffle_epi8(
        qword, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
    return _mm512_add_epi8(four, _mm512_set1_epi8(static_cast<char>(step)));
}

// Value i of a block lies in bits 2 (i % 4) of byte i / 4.
template <>
struct FastGroup<Q2_0> {
    static constexpr bool exists = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const __m512i low = lanes(b + 2, b + 20, b + 38, b + 56).v, high = lanes(b + 74, b + 92, b + 110, b + 128).v;
        const __m512i windows = _mm512_set1_epi64(0x2624222006040200);
        for (int step = 0; step < 8; ++step) {
            const __m512i spread = _mm512_permutex2var_epi8(low, step_bytes(step), high);
            const __m512i crumbs = _mm512_multishift_epi64_epi8(windows, spread);
            _mm512_store_si512(codes + 64 * step, _mm512_and_si512(crumbs, _mm512_set1_epi8(3)));
        }
        for (int s = 0; s < 16; ++s) scale[s] = half_to_float(read16(b + 18 * (s / 2)));
    }
};

}  // namespace strata::STRATA_ISA
#endif
