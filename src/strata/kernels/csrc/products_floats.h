// Sixteen plain values as float32, out of each format that holds no codes.
#pragma once

#include "numbers.h"
#include "vector.h"

#if STRATA_VECTOR

namespace strata::STRATA_ISA {

static inline __m128i bytes16_at(const uint8_t* b) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)); }

// Sixteen bytes, or sixteen 16-bit words, as 32-bit words.
static inline Bytes64 words_of_bytes(__m128i bytes) {
#if STRATA_AVX512
    return {_mm512_cvtepu8_epi32(bytes)};
#else
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))};
#endif
}
static inline Bytes64 words_of_halves(const uint8_t* b) {
#if STRATA_AVX512
    return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)))};
#else
    return {_mm256_cvtepu16_epi32(bytes16_at(b)), _mm256_cvtepu16_epi32(bytes16_at(b + 16))};
#endif
}
template <int n>
static inline Bytes64 left_words(Bytes64 words) {
#if STRATA_AVX512
    return {_mm512_slli_epi32(words.v, n)};
#else
    return {_mm256_slli_epi32(words.a, n), _mm256_slli_epi32(words.b, n)};
#endif
}
static inline Floats16 with_bits(Floats16 x, Bytes64 bits) {
#if STRATA_AVX512
    return {_mm512_or_ps(x.v, _mm512_castsi512_ps(bits.v))};
#else
    return {_mm256_or_ps(x.a, _mm256_castsi256_ps(bits.a)), _mm256_or_ps(x.b, _mm256_castsi256_ps(bits.b))};
#endif
}

struct PlainF32 {
    static constexpr int bytes = 4;
    static Floats16 sixteen(const uint8_t* b) { return floats_of_bits(load64(b)); }
    static float one(const uint8_t* b) { return float_of_bits(read32(b)); }
};

struct PlainF16 {
    static constexpr int bytes = 2;
    static Floats16 sixteen(const uint8_t* b) { return from_halves(bytes16_at(b), bytes16_at(b + 16)); }
    static float one(const uint8_t* b) { return half_to_float(read16(b)); }
};

struct PlainBF16 {
    static constexpr int bytes = 2;
    static Floats16 sixteen(const uint8_t* b) { return floats_of_bits(left_words<16>(words_of_halves(b))); }
    static float one(const uint8_t* b) { return float_of_bits(static_cast<uint32_t>(read16(b)) << 16); }
};

struct PlainE4M3 {
    static constexpr int bytes = 1;
    // Its seven bits, put where a float has them, are the number times 2^-120, small ones as subnormal floats too. What
    // would be 480 is not a number: made 2 first, whose bits and these are 0x7fc00000.
    static Floats16 sixteen(const uint8_t* b) {
        const __m128i codes = bytes16_at(b), most = _mm_set1_epi8(127), magnitude = _mm_and_si128(codes, most);
        const __m128i none = _mm_cmpeq_epi8(magnitude, most), sign = _mm_andnot_si128(most, codes);
        const __m128i finite = _mm_andnot_si128(_mm_and_si128(none, _mm_set1_epi8(63)), magnitude);
        const float up = float_of_bits((127 + 120) << 23);
        const Floats16 size = floats_of_bits(left_words<20>(words_of_bytes(finite))) * two_floats(up, up);
        return with_bits(size, left_words<24>(words_of_bytes(sign)) | left_words<22>(words_of_bytes(none)));
    }
    static float one(const uint8_t* b) { return e4m3_to_float(*b); }
};

}  // namespace strata::STRATA_ISA
#endif
