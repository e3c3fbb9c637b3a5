// Groups of the grid formats and Q2_0. With AVX2, grid rows are copied as whole words, then the signs of 64 values are
// put on at once; with AVX-512, products_grid512.h finds values by byte permutes (a gather halves the speed,
// docs/numerics.md 5).
#pragma once

#include "products_fast.h"
#include "products_grid512.h"

#if STRATA_VECTOR

namespace strata::STRATA_ISA {

#if !STRATA_AVX512

// Magnitudes in group layout -> offset + magnitude, or offset - magnitude where bit 4 step + i of `signs[s]` is set.
template <int sub>
static inline void put_signs(uint8_t* codes, const uint32_t* signs, int offset) {
    for (int half = 0; half < 2; ++half) {
        const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(signs + 8 * half));
        const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0, 0, 4, 4, 4,
                                                4, 8, 8, 8, 8, 12, 12, 12, 12);
        const __m256i bit = _mm256_set1_epi32(0x08040201), base = _mm256_set1_epi8(static_cast<char>(offset));
        for (int step = 0; step < sub / 4; ++step) {
            __m256i* at = reinterpret_cast<__m256i*>(codes + 64 * step + 32 * half);
            const __m256i here = _mm256_shuffle_epi8(_mm256_srli_epi32(words, 4 * step), spread);
            const __m256i minus = _mm256_cmpeq_epi8(_mm256_and_si256(here, bit), bit);
            const __m256i value = _mm256_sub_epi8(_mm256_xor_si256(_mm256_loadu_si256(at), minus), minus);
            _mm256_storeu_si256(at, _mm256_add_epi8(value, base));
        }
    }
}

// Eight values of sub-block s whose first one is value `first` of it.
static inline void put8(uint8_t* codes, int s, int first, uint64_t values) {
    const uint32_t low = static_cast<uint32_t>(values), high = static_cast<uint32_t>(values >> 32);
    memcpy(codes + first / 4 * 64 + 4 * s, &low, 4);
    memcpy(codes + (first / 4 + 1) * 64 + 4 * s, &high, 4);
}

static inline uint64_t word8(const void* grid_row) {
    uint64_t values;
    memcpy(&values, grid_row, 8);
    return values;
}

// Four 7-bit sign indices in the low bits of `word` -> 32 sign bits.
static inline uint32_t sign_word(uint32_t word) {
    return sign_table.of[word & 127] | sign_table.of[word >> 7 & 127] << 8 | sign_table.of[word >> 14 & 127] << 16 |
           static_cast<uint32_t>(sign_table.of[word >> 21 & 127]) << 24;
}

template <>
struct FastGroup<IQ3_XXS> {
    static constexpr bool exists = true, in_registers = false;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d[2] = {half_to_float(read16(b)), half_to_float(read16(b + IQ3_XXS::bytes))};
        uint32_t signs[16];
        for (int s = 0; s < 16; ++s) {
            const uint8_t *block = b + IQ3_XXS::bytes * (s / 8), *index = block + 2 + 8 * (s % 8);
            const uint32_t word = read32(block + 66 + 4 * (s % 8));
            for (int g = 0; g < 8; ++g) memcpy(codes + 64 * g + 4 * s, grid_iq3_xxs[index[g]], 4);
            signs[s] = sign_word(word);
            scale[s] = d[s / 8] * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
        }
        put_signs<32>(codes, signs, IQ3_XXS::offset);
    }
};

template <>
struct FastGroup<IQ2_XXS> {
    static constexpr bool exists = true, in_registers = false;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d[2] = {half_to_float(read16(b)), half_to_float(read16(b + IQ2_XXS::bytes))};
        uint32_t signs[16];
        for (int s = 0; s < 16; ++s) {
            const uint8_t *block = b + IQ2_XXS::bytes * (s / 8), *index = block + 2 + 8 * (s % 8);
            const uint32_t word = read32(index + 4);
            for (int g = 0; g < 4; ++g) put8(codes, s, 8 * g, word8(grid_iq2_xxs[index[g]]));
            signs[s] = sign_word(word);
            scale[s] = d[s / 8] * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
        }
        put_signs<32>(codes, signs, IQ2_XXS::offset);
    }
};

// (d * (0.5 + nibble)) * 0.25 for 16 nibbles.
static inline void quarter_scales(const uint8_t* b, float d, float* scale) {
    alignas(64) float small[16];
    scale16(nibbles16(b), 1.0f, 1.0f, small);
    for (int s = 0; s < 16; ++s) scale[s] = d * (0.5f + small[s]) * 0.25f;
}

template <>
struct FastGroup<IQ2_XS> {
    static constexpr bool exists = true, in_registers = false;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        uint32_t signs[16];
        for (int s = 0; s < 16; ++s) {
            const uint32_t first = read16(b + 2 + 4 * s), second = read16(b + 4 + 4 * s);
            put8(codes, s, 0, word8(grid_iq2_xs[first & 511]));
            put8(codes, s, 8, word8(grid_iq2_xs[second & 511]));
            signs[s] = sign_table.of[first >> 9] | sign_table.of[second >> 9] << 8;
        }
        put_signs<16>(codes, signs, IQ2_XS::offset);
        quarter_scales(b + 66, half_to_float(read16(b)), scale);
    }
};

template <>
struct FastGroup<IQ2_S> {
    static constexpr bool exists = true, in_registers = false;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        uint32_t signs[16];
        for (int s = 0; s < 16; ++s) {
            const uint32_t high = b[66 + s / 2] >> 4 * (s % 2);
            put8(codes, s, 0, word8(grid_iq2_s[b[2 + 2 * s] | (high & 3) << 8]));
            put8(codes, s, 8, word8(grid_iq2_s[b[3 + 2 * s] | (high >> 2 & 3) << 8]));
            signs[s] = read16(b + 34 + 2 * s);
        }
        put_signs<16>(codes, signs, IQ2_S::offset);
        quarter_scales(b + 74, half_to_float(read16(b)), scale);
    }
};

// 16 + 8 g + 1 or - 1 for eight grid values g in -1 .. 1, as bytes of a word: g + 1 without carries, times 8, plus 9
// or 7.
static inline uint64_t iq1_word(uint32_t index, bool minus) {
    constexpr uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    const uint64_t g = word8(grid_iq1[index]);
    return (((g & ~tops) + ones) ^ (g & tops)) * 8 + ones * (minus ? 7 : 9);
}

template <>
struct FastGroup<IQ1_S> {
    static constexpr bool exists = true, in_registers = false;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const float d[2] = {half_to_float(read16(b)), half_to_float(read16(b + IQ1_S::bytes))};
        for (int s = 0; s < 16; ++s) {
            const uint8_t *block = b + IQ1_S::bytes * (s / 8), *index = block + 2 + 4 * (s % 8);
            const uint32_t head = read16(block + 34 + 2 * (s % 8));
            for (int g = 0; g < 4; ++g)
                put8(codes, s, 8 * g, iq1_word(index[g] | (head >> 3 * g & 7) << 8, head >> 15));
            scale[s] = d[s / 8] * static_cast<float>(2 * (head >> 12 & 7) + 1) * 0.125f;
        }
    }
};

template <>
struct FastGroup<IQ1_M> {
    static constexpr bool exists = true, in_registers = false;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        uint32_t half = 0;
        for (int k = 0; k < 4; ++k) half |= read16(b + 48 + 2 * k) >> 12 << 4 * k;
        const float d = half_to_float(half);
        for (int s = 0; s < 16; ++s) {
            const uint32_t tail = b[32 + s];
            put8(codes, s, 0, iq1_word(b[2 * s] | (tail & 7) << 8, tail >> 3 & 1));
            put8(codes, s, 8, iq1_word(b[2 * s + 1] | (tail >> 4 & 7) << 8, tail >> 7));
            scale[s] = d * static_cast<float>(2 * (read16(b + 48 + 2 * (s / 4)) >> 3 * (s % 4) & 7) + 1) * 0.125f;
        }
    }
};

// d * (1 + 2 nibble) of two blocks.
static inline void iq3_s_group_scales(const uint8_t* b, float* scale) {
    const uint8_t* c = b + IQ3_S::bytes;
    const __m128i packed = _mm_set_epi32(0, 0, static_cast<int>(read32(c + 106)), static_cast<int>(read32(b + 106)));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i small =
        _mm_unpacklo_epi8(_mm_and_si128(packed, mask), _mm_and_si128(_mm_srli_epi16(packed, 4), mask));
    const __m128i odd = _mm_or_si128(_mm_add_epi8(small, small), _mm_set1_epi8(1));
    scale16(odd, half_to_float(read16(b)), half_to_float(read16(c)), scale);
}

template <>
struct FastGroup<IQ3_S> {
    static constexpr bool exists = true, in_registers = false;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        uint32_t signs[16];
        for (int s = 0; s < 16; ++s) {
            const uint8_t *block = b + IQ3_S::bytes * (s / 8), *index = block + 2 + 8 * (s % 8);
            const uint32_t high = block[66 + s % 8];
            for (int g = 0; g < 8; ++g) memcpy(codes + 64 * g + 4 * s, grid_iq3_s[index[g] | (high >> g & 1) << 8], 4);
            signs[s] = read32(block + 74 + 4 * (s % 8));
        }
        iq3_s_group_scales(b, scale);
        put_signs<32>(codes, signs, IQ3_S::offset);
    }
};

#else

template <> struct FastGroup<IQ1_S> : GridGroup<IQ1_S> {};
template <> struct FastGroup<IQ1_M> : GridGroup<IQ1_M> {};
template <> struct FastGroup<IQ2_XXS> : GridGroup<IQ2_XXS> {};
template <> struct FastGroup<IQ2_XS> : GridGroup<IQ2_XS> {};
template <> struct FastGroup<IQ2_S> : GridGroup<IQ2_S> {};
template <> struct FastGroup<IQ3_XXS> : GridGroup<IQ3_XXS> {};
template <> struct FastGroup<IQ3_S> : GridGroup<IQ3_S> {};

// Where the group layout takes its bytes from: byte (s, b) of step j comes from byte 8 s + j of 16 sub-blocks with 8
// bytes each.
static inline __m512i step_bytes(int step) {
    const __m512i qword = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
    const __m512i four = _mm512_shuffle_epi8(
        qword, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
    return _mm512_add_epi8(four, _mm512_set1_epi8(static_cast<char>(step)));
}

// Value i of a block lies in bits 2 (i % 4) of byte i / 4.
template <>
struct FastGroup<Q2_0> {
    static constexpr bool exists = true, in_registers = false;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float*) {
        const __m512i low = lanes(b + 2, b + 20, b + 38, b + 56).v, high = lanes(b + 74, b + 92, b + 110, b + 128).v;
        const __m512i windows = _mm512_set1_epi64(0x2624222006040200);
        for (int step = 0; step < 8; ++step) {
            const __m512i spread = _mm512_permutex2var_epi8(low, step_bytes(step), high);
            const __m512i crumbs = _mm512_multishift_epi64_epi8(windows, spread);
            _mm512_storeu_si512(codes + 64 * step, _mm512_and_si512(crumbs, _mm512_set1_epi8(3)));
        }
        store(scale, strided_halves<18, 2>(b));
    }
};

#endif

}  // namespace strata::STRATA_ISA
#endif
