// Groups of which several rows have a part each, in registers (products_few_kernel.h).
//
//     load_floats_again<times>, load_ints_again<times>   the first 16 / times values, so many times
//     dot4_again<wide, times>                            dot4 with the first 64 / times bytes of q, so many times
//     join_first      the first eight values of two, or the first four of four, one after the other
//     part_first      back again; the others as they are
//     part_trees      of each part the sum, as lane_tree has it where all other lanes are 0
#pragma once

#include "vector.h"

#if STRATA_VECTOR

namespace strata::STRATA_ISA {

#if STRATA_AVX512

template <int times>
static inline Floats16 load_floats_again(const float* from) {
    if constexpr (times == 4) return {_mm512_broadcast_f32x4(_mm_loadu_ps(from))};
    else if constexpr (times == 2) return {_mm512_broadcast_f32x8(_mm256_loadu_ps(from))};
    else return load_floats(from);
}
template <int times>
static inline Ints16 load_ints_again(const void* from) {
    if constexpr (times == 4) return {_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(from)))};
    else if constexpr (times == 2)
        return {_mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(from)))};
    else return {_mm512_loadu_si512(from)};
}

template <bool wide, int times>
static inline Ints16 dot4_again(Ints16 acc, Bytes64 codes, const int8_t* q) {
    return {_mm512_dpbusd_epi32(acc.v, codes.v, load_ints_again<times>(q).v)};
}

static inline Floats16 join_first(const Floats16 (&of)[2]) { return {_mm512_shuffle_f32x4(of[0].v, of[1].v, 0x44)}; }
static inline void part_first(Floats16 joined, Floats16 (&of)[2]) {
    of[0].v = _mm512_mask_mov_ps(of[0].v, 0x00ff, joined.v);
    of[1].v = _mm512_shuffle_f32x4(joined.v, of[1].v, 0xee);
}
static inline Floats16 join_first(const Floats16 (&of)[4]) {
    const __m512 ab = _mm512_insertf32x4(of[0].v, _mm512_castps512_ps128(of[1].v), 1);
    const __m512 abc = _mm512_insertf32x4(ab, _mm512_castps512_ps128(of[2].v), 2);
    return {_mm512_insertf32x4(abc, _mm512_castps512_ps128(of[3].v), 3)};
}
static inline void part_first(Floats16 joined, Floats16 (&of)[4]) {
    of[0].v = _mm512_mask_mov_ps(of[0].v, 0x000f, joined.v);
    of[1].v = _mm512_mask_shuffle_f32x4(of[1].v, 0x000f, joined.v, joined.v, 1);
    of[2].v = _mm512_mask_shuffle_f32x4(of[2].v, 0x000f, joined.v, joined.v, 2);
    of[3].v = _mm512_mask_shuffle_f32x4(of[3].v, 0x000f, joined.v, joined.v, 3);
}

template <int parts>
static inline void part_trees(Floats16 joined, float (&y)[parts]) {
    __m512 sum = _mm512_add_ps(joined.v, _mm512_setzero_ps());  // a part that is -0 becomes 0
    if constexpr (parts == 2) sum = _mm512_add_ps(sum, _mm512_shuffle_f32x4(sum, sum, 0xb1));
    sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0x4e));
    sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0xb1));
    y[0] = _mm512_cvtss_f32(sum);
    if constexpr (parts == 4) {
        y[1] = _mm_cvtss_f32(_mm512_extractf32x4_ps(sum, 1));
        y[3] = _mm_cvtss_f32(_mm512_extractf32x4_ps(sum, 3));
    }
    y[parts / 2] = _mm_cvtss_f32(_mm512_extractf32x4_ps(sum, 2));
}

#else

template <int times>
static inline Floats16 load_floats_again(const float* from) {
    if constexpr (times == 1) return load_floats(from);
    const __m256 v = times == 2 ? _mm256_loadu_ps(from) : _mm256_broadcast_ps(reinterpret_cast<const __m128*>(from));
    return {v, v};
}
template <int times>
static inline Ints16 load_ints_again(const void* from) {
    if constexpr (times == 1) return load_ints(static_cast<const int32_t*>(from));
    const __m256i v = times == 2 ? _mm256_loadu_si256(static_cast<const __m256i*>(from))
                                 : _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from)));
    return {v, v};
}

template <bool wide, int times>
static inline Ints16 dot4_again(Ints16 acc, Bytes64 codes, const int8_t* q) {
    const Ints16 x = load_ints_again<times>(q);
    return {dot4<wide>(acc.a, codes.a, x.a), dot4<wide>(acc.b, codes.b, x.b)};
}

static inline Floats16 join_first(const Floats16 (&of)[2]) { return {of[0].a, of[1].a}; }
static inline void part_first(Floats16 joined, Floats16 (&of)[2]) {
    of[0].a = joined.a;
    of[1].a = joined.b;
}
static inline Floats16 join_first(const Floats16 (&of)[4]) {
    return {_mm256_permute2f128_ps(of[0].a, of[1].a, 0x20), _mm256_permute2f128_ps(of[2].a, of[3].a, 0x20)};
}
static inline void part_first(Floats16 joined, Floats16 (&of)[4]) {
    of[0].a = _mm256_blend_ps(of[0].a, joined.a, 0x0f);
    of[1].a = _mm256_blend_ps(of[1].a, _mm256_permute2f128_ps(joined.a, joined.a, 0x11), 0x0f);
    of[2].a = _mm256_blend_ps(of[2].a, joined.b, 0x0f);
    of[3].a = _mm256_blend_ps(of[3].a, _mm256_permute2f128_ps(joined.b, joined.b, 0x11), 0x0f);
}

template <int parts>
static inline void part_trees(Floats16 joined, float (&y)[parts]) {
    int part = 0;
    for (const __m256 half :
         {_mm256_add_ps(joined.a, _mm256_setzero_ps()), _mm256_add_ps(joined.b, _mm256_setzero_ps())}) {
        const __m128 low = _mm256_castps256_ps128(half), high = _mm256_extractf128_ps(half, 1);
        const auto end = [&](__m128 four) {
            four = _mm_add_ps(four, _mm_movehl_ps(four, four));
            y[part++] = _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
        };
        if constexpr (parts == 2) {
            end(_mm_add_ps(low, high));
        } else {
            end(low);
            end(high);
        }
    }
}

#endif

}  // namespace strata::STRATA_ISA

#endif
