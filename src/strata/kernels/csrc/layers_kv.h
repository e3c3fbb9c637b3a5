// What a cache's values are kept as, written and read; cache/naive.py states every rounding.
#pragma once

#include "layers_plane.h"
#include "layers_simd.h"
// After layers_simd.h, whose STRATA_INLINE it uses.
#include "products_quantise.h"

namespace strata::STRATA_ISA {

// The upper half of a float, rounded to nearest even; a NaN stays one.
STRATA_INLINE uint16_t bf16_of_float(float x) {
    const uint32_t bits = bits_of_float(x);
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// W values as floats, exactly.
STRATA_INLINE V vbf16(const uint16_t* p) {
#if defined(STRATA_AVX512)
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
#elif defined(STRATA_AVX2)
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
#else
    V r;
    for (int i = 0; i < W; ++i) r.v[i] = float_of_bits(static_cast<uint32_t>(p[i]) << 16);
    return r;
#endif
}

STRATA_INLINE V vint8(const int8_t* p) {
#if defined(STRATA_AVX512)
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(STRATA_AVX2)
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
    V r;
    for (int i = 0; i < W; ++i) r.v[i] = static_cast<float>(p[i]);
    return r;
#endif
}

// n values of a plane from value `first` on; n and `first` are multiples of 32 for int8.
STRATA_INLINE void read_values(const Plane& plane, int64_t first, int64_t n, float* to) {
    if (plane.type == KvType::bf16) {
        const auto* from = static_cast<const uint16_t*>(plane.data) + first;
        int64_t c = 0;
        for (; c + W <= n; c += W) vstore(to + c, vbf16(from + c));
        for (; c < n; ++c) to[c] = float_of_bits(static_cast<uint32_t>(from[c]) << 16);
    } else if (plane.type == KvType::int8) {
        const auto* from = static_cast<const int8_t*>(plane.data) + first;
        const float* scale = plane.scales + first / kKvBlock;
        for (int64_t c = 0; c < n; c += kKvBlock) {
            const V d = vset(scale[c / kKvBlock]);
            for (int i = 0; i < kKvBlock; i += W) vstore(to + c + i, vmul(vint8(from + c + i), d));
        }
    } else {
        memcpy(to, plane.floats() + first, static_cast<size_t>(n) * sizeof(float));
    }
}

STRATA_INLINE void write_values(const Plane& plane, int64_t first, int64_t n, const float* from) {
    if (plane.type == KvType::bf16) {
        auto* to = static_cast<uint16_t*>(const_cast<void*>(plane.data)) + first;
        for (int64_t c = 0; c < n; ++c) to[c] = bf16_of_float(from[c]);
    } else if (plane.type == KvType::int8) {
        auto* to = static_cast<int8_t*>(const_cast<void*>(plane.data)) + first;
        float* scale = const_cast<float*>(plane.scales) + first / kKvBlock;
        for (int64_t c = 0; c < n; c += kKvBlock) scale[c / kKvBlock] = quantise_block(from + c, to + c);
    } else {
        memcpy(const_cast<float*>(plane.floats()) + first, from, static_cast<size_t>(n) * sizeof(float));
    }
}

}  // namespace strata::STRATA_ISA
