// Groups of NVFP4, in registers (products_fast.h): sub-blocks of 16 E2M1 values in eight bytes.
#pragma once

#include "products_fast.h"

#if STRATA_VECTOR

namespace strata::STRATA_ISA {

// Half of each unsigned E4M3 number. Its seven bits, put where a float has them, are the number times 2^-120, small
// ones as subnormal floats too; the NaN code is 0.
static inline Floats16 half_ue4m3(__m128i bytes) {
    const __m128i most = _mm_set1_epi8(127), code = _mm_and_si128(bytes, most);
    const __m128i finite = _mm_andnot_si128(_mm_cmpeq_epi8(code, most), code);
    const float up = float_of_bits((127 + 119) << 23);
#if STRATA_AVX512
    const Bytes64 bits{_mm512_slli_epi32(_mm512_cvtepu8_epi32(finite), 20)};
#else
    const __m128i later = _mm_unpackhi_epi64(finite, finite);
    const Bytes64 bits{_mm256_slli_epi32(_mm256_cvtepu8_epi32(finite), 20),
                       _mm256_slli_epi32(_mm256_cvtepu8_epi32(later), 20)};
#endif
    return floats_of_bits(bits) * two_floats(up, up);
}

// Four blocks of four sub-blocks each: their scales, then for each eight bytes, whose low nibbles are the first values.
template <>
struct FastGroup<NVFP4> : RegisterGroup<NVFP4> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        const NibbleTable table(e2m1_codes.code);
        const Bytes64 first = lanes(b + 4, b + 40, b + 76, b + 112), second = lanes(b + 20, b + 56, b + 92, b + 128);
        const Bytes64 even = low32(first, second), odd = high32(first, second);
        const Bytes64 four[2] = {low32(even, odd), high32(even, odd)};  // bytes 0 .. 3 and 4 .. 7 of every sub-block
        for (int step = 0; step < 2; ++step) {
            emit(step, table.low(four[step]));
            emit(step + 2, table.high(four[step]));
        }
    }
    static Floats16 scales(const uint8_t* b) {
        auto word = [&](int block) { return static_cast<int>(read32(b + 36 * block)); };
        return half_ue4m3(_mm_setr_epi32(word(0), word(1), word(2), word(3)));
    }
};

// Values side by side, two in a byte. The scales lie in the weight's second plane.
template <>
struct FastGroup<NVFP4_PAIRS> : RegisterGroup<NVFP4_PAIRS> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        const NibbleTable table(e2m1_codes.code);
        const Bytes64 first = lanes(b, b + 32, b + 64, b + 96), second = lanes(b + 16, b + 48, b + 80, b + 112);
        const Bytes64 low[2] = {table.low(first), table.low(second)}, high[2] = {table.high(first), table.high(second)};
        emit_steps(emit, 0, low8(low[0], high[0]), high8(low[0], high[0]), low8(low[1], high[1]),
                   high8(low[1], high[1]));
    }
    static Floats16 scales(const uint8_t*) { return no_floats(); }
};

}  // namespace strata::STRATA_ISA
#endif
