// The grid formats in AVX-512 registers: codes of 512 values at a time, from two blocks of 256.
//
// A grid lies in byte tables (a few bits per value), in which a byte permute looks up 64 indices among 128 entries per
// cycle of Zen 4; a gather, or a load per index, takes longer. What comes out is in strided order,
//
//     code[step j][sub-block s][i] = value (sub / 4) i + j of sub-block s,
//
// because byte i of a sub-block's indices and signs then stays where it is, with no permute after the look-up.
#pragma once

#include "products_grid_tables.h"

namespace strata::STRATA_ISA {

// codes(b, c, code): 8 vectors of the blocks at b and c (code = w_int + F::offset): of one group when sub is 32, of b's
// group and then of c's when it is 16. scales(b, c, scale): the scales of those groups.
template <class F>
struct GridVectors {
    static constexpr bool exists = false;
};

#if STRATA_AVX512

template <>
struct GridVectors<IQ3_S> {
    static constexpr bool exists = true;
    STRATA_INSIDE void codes(const uint8_t* b, const uint8_t* c, __m512i* code) {
        const __m512i low = vector_of(b + 2), high = vector_of(c + 2), signs = halves_of(b + 74, c + 74);
        const __m512i ninth =
            _mm512_permutexvar_epi8(vector_at(fours), _mm512_castsi128_si512(eighths_of(b + 66, c + 66)));
        const __m512i flipped = _mm512_set1_epi8(iq3_s_flipped), last_signs = _mm512_srli_epi16(signs, 2);
        for (int p = 0; p < 2; ++p) {
            const __m512i index = _mm512_permutex2var_epi8(low, vector_at(every_second[p]), high);
            const __m512i own_bit = _mm512_set1_epi32(p ? 0x80200802 : 0x40100401);
            const GridParts where(index, _mm512_test_epi8_mask(ninth, own_bit));
            for (int plane = 0; plane < 2; ++plane) {
                const __m512i two = grid_look_up<512>(iq3_s_planes.plane[plane], index, where);
                for (int e = 0; e < 2; ++e) {
                    const __m512i twice = e ? _mm512_srli_epi16(two, 3) : _mm512_slli_epi16(two, 1);
                    const int step = 4 * p + 2 * plane + e;
                    const __m512i by = vector_at(iq3_s_flips[step < 6 ? step : step - 2]);
                    const __m512i flip = _mm512_permutexvar_epi8(step < 6 ? signs : last_signs, by);
                    code[step] = _mm512_ternarylogic_epi64(twice, flipped, flip, 0x6a);  // (twice & flipped) ^ flip
                }
            }
        }
    }
    STRATA_INSIDE void scales(const uint8_t* b, const uint8_t* c, __m512* scale) {
        const __m512i low = _mm512_set1_epi32(static_cast<int>(read32(b + 106)));
        const __m512i both = _mm512_mask_set1_epi32(low, 0xff00, static_cast<int>(read32(c + 106)));
        const __m512i by = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
        scale[0] = scaled(halves_at(b, c), _mm512_srlv_epi32(both, by), iq3_s_scales);
    }
};

template <>
struct GridVectors<IQ3_XXS> {
    static constexpr bool exists = true;
    STRATA_INSIDE void codes(const uint8_t* b, const uint8_t* c, __m512i* code) {
        const __m512i low = vector_of(b + 2), high = vector_of(c + 2);
        const __m512i signs = signs_at(windows(seven_bits, halves_of(b + 66, c + 66)));
        for (int p = 0; p < 2; ++p) {
            const __m512i index = _mm512_permutex2var_epi8(low, vector_at(every_second[p]), high);
            const GridParts where(index, 0);
            for (int plane = 0; plane < 2; ++plane) {
                const __m512i two = grid_look_up<256>(iq3_xxs_planes.plane[plane], index, where);
                for (int e = 0; e < 2; ++e) {
                    const int step = 4 * p + 2 * plane + e;
                    const __m512i plus = _mm512_permutexvar_epi8(two, vector_at(iq3_xxs_map[e]));
                    code[step] = with_signs(plus, bit_of(signs, step), IQ3_XXS::offset);
                }
            }
        }
    }
    STRATA_INSIDE void scales(const uint8_t* b, const uint8_t* c, __m512* scale) {
        const __m512i small = _mm512_srli_epi32(halves_of(b + 66, c + 66), 28);
        scale[0] = scaled(halves_at(b, c), small, iq3_xxs_scales);
    }
};

template <>
struct GridVectors<IQ2_XXS> {
    static constexpr bool exists = true;
    STRATA_INSIDE void codes(const uint8_t* b, const uint8_t* c, __m512i* code) {
        const __m512i index = words(b, c, 0), signs = signs_at(windows(seven_bits, words(b, c, 1)));
        const GridParts where(index, 0);
        for (int plane = 0; plane < 2; ++plane) {
            __m512i* four = code + 4 * plane;
            map_crumbs(grid_look_up<256>(iq2_xxs_planes.plane[plane], index, where), iq2_map, four);
            for (int e = 0; e < 4; ++e) four[e] = with_signs(four[e], bit_of(signs, 4 * plane + e), IQ2_XXS::offset);
        }
    }
    STRATA_INSIDE void scales(const uint8_t* b, const uint8_t* c, __m512* scale) {
        scale[0] = scaled(halves_at(b, c), _mm512_srli_epi32(words(b, c, 1), 28), iq2_scales);
    }

private:
    // Every sub-block's four bytes of indices, or its word of signs and scale.
    static inline __m512i words(const uint8_t* b, const uint8_t* c, int second) {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        return _mm512_permutex2var_epi32(vector_of(b + 2), _mm512_add_epi32(even, _mm512_set1_epi32(second)),
                                         vector_of(c + 2));
    }
};

// The two planes of 64 indices with a sign byte each -> the codes of two groups of 16 x 16.
STRATA_INSIDE void iq2_groups(__m512i first, __m512i second, __m512i signs, __m512i* code) {
    for (int group = 0; group < 2; ++group, code += 4) {
        map_crumbs(_mm512_permutex2var_epi8(first, vector_at(interleaved[group]), second), iq2_map, code);
        const __m512i own = _mm512_permutexvar_epi8(vector_at(doubled[group]), signs);
        for (int e = 0; e < 4; ++e) {
            const __m512i bits = _mm512_set1_epi16(static_cast<short>(0x1001 << e));  // value e of either plane
            code[e] = with_signs(code[e], _mm512_test_epi8_mask(own, bits), IQ2_S::offset);
        }
    }
}

// d at b and 16 nibbles at `small`.
static inline __m512 iq2_scales16(const uint8_t* b, const uint8_t* small) {
    return scaled(halves_at(b, b), _mm512_cvtepu8_epi32(nibbles16(small)), iq2_scales);
}

template <>
struct GridVectors<IQ2_XS> {
    static constexpr bool exists = true;
    STRATA_INSIDE void codes(const uint8_t* b, const uint8_t* c, __m512i* code) {
        const __m512i low = vector_of(b + 2), high = vector_of(c + 2);
        const __m512i index = _mm512_permutex2var_epi8(low, vector_at(every_second[0]), high);
        const __m512i upper = _mm512_permutex2var_epi8(low, vector_at(every_second[1]), high);
        const __m512i signs = signs_at(_mm512_srli_epi16(upper, 1));
        const GridParts where(index, bit_of(upper, 0));
        iq2_groups(grid_look_up<512>(iq2_xs_planes.plane[0], index, where),
                   grid_look_up<512>(iq2_xs_planes.plane[1], index, where), signs, code);
    }
    STRATA_INSIDE void scales(const uint8_t* b, const uint8_t* c, __m512* scale) {
        scale[0] = iq2_scales16(b, b + 66);
        scale[1] = iq2_scales16(c, c + 66);
    }
};

template <>
struct GridVectors<IQ2_S> {
    static constexpr bool exists = true;
    STRATA_INSIDE void codes(const uint8_t* b, const uint8_t* c, __m512i* code) {
        const __m512i index = halves_of(b + 2, c + 2), signs = halves_of(b + 34, c + 34);
        const __m512i upper = windows(two_bits, _mm512_cvtepu8_epi32(eighths_of(b + 66, c + 66)));
        const GridParts where(index, bit_of(upper, 0), bit_of(upper, 1));
        iq2_groups(grid_look_up<1024>(iq2_s_planes.plane[0], index, where),
                   grid_look_up<1024>(iq2_s_planes.plane[1], index, where), signs, code);
    }
    STRATA_INSIDE void scales(const uint8_t* b, const uint8_t* c, __m512* scale) {
        scale[0] = iq2_scales16(b, b + 74);
        scale[1] = iq2_scales16(c, c + 74);
    }
};

// Codes of bytes with four grid values of IQ1, eight times (value + 1/8), or - 1/8 in the lanes of `minus`.
STRATA_INSIDE void iq1_codes(__m512i crumbs, __mmask64 minus, __m512i* code) {
    map_crumbs(crumbs, iq1_map, code);
    for (int e = 0; e < 4; ++e) code[e] = _mm512_mask_sub_epi8(code[e], minus, code[e], _mm512_set1_epi8(2));
}

template <>
struct GridVectors<IQ1_S> {
    static constexpr bool exists = true;
    STRATA_INSIDE void codes(const uint8_t* b, const uint8_t* c, __m512i* code) {
        const __m512i index = halves_of(b + 2, c + 2), head = heads(b, c), upper = windows(three_bits, head);
        const GridParts where(index, bit_of(upper, 0), bit_of(upper, 1), bit_of(upper, 2));
        const __mmask64 minus = bit_of(windows(fifteenth_bit, head), 0);
        for (int plane = 0; plane < 2; ++plane)
            iq1_codes(grid_look_up<2048>(iq1_planes.plane[plane], index, where), minus, code + 4 * plane);
    }
    STRATA_INSIDE void scales(const uint8_t* b, const uint8_t* c, __m512* scale) {
        const __m512i small = _mm512_and_si512(_mm512_srli_epi32(heads(b, c), 12), _mm512_set1_epi32(7));
        scale[0] = scaled(halves_at(b, c), small, iq1_scales);
    }

private:
    // Every sub-block's 16 bits: three more of each index, the scale, the sign of 1/8.
    static inline __m512i heads(const uint8_t* b, const uint8_t* c) {
        return _mm512_cvtepu16_epi32(quarters_of(b + 34, c + 34));
    }
};

template <>
struct GridVectors<IQ1_M> {
    static constexpr bool exists = true;
    STRATA_INSIDE void codes(const uint8_t* b, const uint8_t* c, __m512i* code) {
        const __m512i index = halves_of(b, c);
        const __m512i upper = windows(nibble_bits, _mm512_cvtepu8_epi16(quarters_of(b + 32, c + 32)));
        const GridParts where(index, bit_of(upper, 0), bit_of(upper, 1), bit_of(upper, 2));
        const __m512i first = grid_look_up<2048>(iq1_planes.plane[0], index, where);
        const __m512i second = grid_look_up<2048>(iq1_planes.plane[1], index, where);
        for (int group = 0; group < 2; ++group) {
            const __mmask64 minus = bit_of(_mm512_permutexvar_epi8(vector_at(doubled[group]), upper), 3);
            iq1_codes(_mm512_permutex2var_epi8(first, vector_at(interleaved[group]), second), minus, code + 4 * group);
        }
    }
    STRATA_INSIDE void scales(const uint8_t* b, const uint8_t* c, __m512* scale) {
        scale[0] = scales16(b + 48);
        scale[1] = scales16(c + 48);
    }

private:
    // Four words of 16 bits: four 3-bit scales in each, and on top a quarter of the fp16 scale.
    static inline __m512 scales16(const uint8_t* b) {
        const uint32_t low = read32(b), high = read32(b + 4);
        const uint32_t half = (low >> 12 & 15) | (low >> 28) << 4 | (high >> 12 & 15) << 8 | (high >> 28) << 12;
        const __m512i words = _mm512_mask_set1_epi32(_mm512_set1_epi32(static_cast<int>(low)), 0xff00,
                                                     static_cast<int>(high));
        const __m512i by = _mm512_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25, 0, 3, 6, 9, 16, 19, 22, 25);
        const __m512i small = _mm512_and_si512(_mm512_srlv_epi32(words, by), _mm512_set1_epi32(7));
        return scaled(_mm512_set1_ps(half_to_float(half)), small, iq1_scales);
    }
};

// One group in the order of products.h.
template <class F>
struct GridGroup : RegisterGroup<F> {
    static const uint8_t* second(const uint8_t* b) { return F::sub == 32 ? b + F::bytes : b; }
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        __m512i code[8], step[4];
        GridVectors<F>::codes(b, second(b), code);
#pragma GCC unroll 2
        for (int part = 0; part < F::sub / 16; ++part) {
            transpose4(code + 4 * part, step);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) emit(F::sub / 16 * i + part, Bytes64{step[i]});
        }
    }
    static Floats16 scales(const uint8_t* b) {
        __m512 scale[2];
        GridVectors<F>::scales(b, second(b), scale);
        return {scale[0]};
    }
};

#endif

}  // namespace strata::STRATA_ISA
