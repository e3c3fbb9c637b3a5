// Activations as int8 blocks (docs/numerics.md 1.1) in the group layout: the C++ form of exact.py's quantise_rows.
#pragma once

#include <math.h>
#include <string.h>

#include "activation.h"
#include "products.h"
#include "vector.h"

namespace strata::STRATA_ISA {

static inline int64_t groups_of(int64_t cols, int sub) { return (cols + 16 * sub - 1) / (16 * sub); }

// Rows in group layout for one size of sub-block: q [rows, groups * 16 * sub], d and m [rows, groups * 16].
struct Grouped {
    int8_t* q;
    float* d;
    int32_t* m;  // sums of q
    int64_t groups;
};

// What products read: float rows and, where a weight holds codes, the rows in the layouts that its formats need.
struct Input {
    const float* x;  // [rows, cols]
    int64_t rows, cols;
    Grouped by32, by16;  // q null when not needed
};

// One block of 32 values: q [32], d; q = 0 and d = NaN when a value is not finite.
static inline float quantise_block(const float* x, int8_t* q) {
    uint32_t largest = 0;
    for (int i = 0; i < 32; ++i) {
        const uint32_t magnitude = bits_of_float(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    const float d = largest < 0x7f800000u ? float_of_bits(largest) / 127.0f : float_of_bits(0x7fc00000u);
    const bool usable = d > 0.0f;
    const float by = usable ? d : 1.0f;
    for (int i = 0; i < 32; ++i) {
        float ratio = round_even((usable ? x[i] : 0.0f) / by);
        ratio = ratio < -127.0f ? -127.0f : ratio;
        ratio = ratio > 127.0f ? 127.0f : ratio;
        q[i] = static_cast<int8_t>(static_cast<int32_t>(ratio));
    }
    return d;
}

#if STRATA_AVX512

// Lane i: the largest of the 16 lanes of vector i.
static inline __m512i largest_lanes(__m512i* v) {
    for (int i = 0; i < 8; ++i)
        v[i] = _mm512_max_epu32(_mm512_mask_blend_epi32(0xff00, v[i], v[i + 8]),
                                _mm512_shuffle_i64x2(v[i], v[i + 8], 0x4e));
    for (int i = 0; i < 4; ++i) {
        const __m512i turned = _mm512_mask_blend_epi32(0xf0f0, v[i + 4], v[i]);
        v[i] = _mm512_max_epu32(_mm512_mask_blend_epi32(0xf0f0, v[i], v[i + 4]),
                                _mm512_shuffle_i64x2(turned, turned, 0xb1));
    }
    for (int i = 0; i < 4; i += 2)
        v[i] = _mm512_max_epu32(_mm512_unpacklo_epi64(v[i], v[i + 1]), _mm512_unpackhi_epi64(v[i], v[i + 1]));
    const __m512 low = _mm512_castsi512_ps(v[0]), high = _mm512_castsi512_ps(v[2]);
    return _mm512_max_epu32(_mm512_castps_si512(_mm512_shuffle_ps(low, high, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(low, high, 0xdd)));
}

// 16 blocks of 32 values: q [512] in order, d [16].
static inline void quantise_blocks(const float* x, int8_t* q, float* d) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), infinite = _mm512_set1_epi32(0x7f800000);
    __m512i most[16];
    for (int b = 0; b < 16; ++b)
        most[b] = _mm512_max_epu32(_mm512_and_si512(_mm512_loadu_si512(x + 32 * b), magnitude),
                                   _mm512_and_si512(_mm512_loadu_si512(x + 32 * b + 16), magnitude));
    const __m512i largest = largest_lanes(most);
    const __m512 scale = _mm512_mask_blend_ps(_mm512_cmplt_epu32_mask(largest, infinite),
                                              _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)),
                                              _mm512_div_ps(_mm512_castsi512_ps(largest), _mm512_set1_ps(127.0f)));
    _mm512_storeu_ps(d, scale);
    for (int b = 0; b < 16; ++b) {
        const __m512 by = _mm512_set1_ps(d[b]);
        const __mmask16 usable = d[b] > 0.0f ? 0xffff : 0;
        for (int half = 0; half < 2; ++half) {
            const __m512 ratio = _mm512_maskz_div_ps(usable, _mm512_loadu_ps(x + 32 * b + 16 * half), by);
            const __m512i whole = _mm512_max_epi32(_mm512_cvtps_epi32(ratio), _mm512_set1_epi32(-127));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 32 * b + 16 * half), _mm512_cvtsepi32_epi8(whole));
        }
    }
}

#else

static inline void quantise_blocks(const float* x, int8_t* q, float* d) {
    for (int b = 0; b < 16; ++b) d[b] = quantise_block(x + 32 * b, q + 32 * b);
}

#endif

// 16 sub-blocks of codes in order -> one group: codes in its layout, d [16], m [16].
template <int sub>
static inline void put_group(uint8_t* codes, float* to_d, int32_t* to_m, const int8_t* q, const float* d) {
#if STRATA_VECTOR
    for (int part = 0; part < sub / 16; ++part) {
        auto piece = [&](int s) { return reinterpret_cast<const uint8_t*>(q) + sub * s + 16 * part; };
        auto four = [&](int k) { return lanes(piece(k), piece(4 + k), piece(8 + k), piece(12 + k)); };
        store_steps(codes + 256 * part, four(0), four(1), four(2), four(3));
    }
#else
    for (int step = 0; step < sub / 4; ++step)
        for (int s = 0; s < 16; ++s) memcpy(codes + 64 * step + 4 * s, q + sub * s + 4 * step, 4);
#endif
    memcpy(to_d, d, 64);
#if STRATA_AVX512
    __m512i sums = _mm512_setzero_si512();
    for (int step = 0; step < sub / 4; ++step)
        sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), _mm512_loadu_si512(codes + 64 * step));
    _mm512_storeu_si512(to_m, sums);
#else
    for (int s = 0; s < 16; ++s) {
        to_m[s] = 0;
        for (int i = 0; i < sub; ++i) to_m[s] += q[sub * s + i];
    }
#endif
}

// A row of `cols` values (a multiple of 32): to32(group, q, d) for each group of 512 and to16(group, q, d) for each of
// 256, with the codes in order and a d for each of the 16 sub-blocks; missing values of the last group are zeros.
template <class To32, class To16>
static inline void quantise_groups(const float* x, int64_t cols, To32 to32, To16 to16) {
    for (int64_t first = 0; first < cols; first += 512) {
        alignas(64) float padded[512], d[16], twice[32];
        alignas(64) int8_t q[512];
        const float* from = x + first;
        if (cols - first < 512) {
            memset(padded, 0, sizeof padded);
            memcpy(padded, from, static_cast<size_t>(cols - first) * 4);
            from = padded;
        }
        quantise_blocks(from, q, d);
        to32(first / 512, q, d);
        for (int b = 0; b < 32; ++b) twice[b] = d[b / 2];
        for (int half = 0; half < 2 && first + 256 * half < cols; ++half)
            to16(first / 256 + half, q + 256 * half, twice + 16 * half);
    }
}

// For quantise_groups: into one row of a layout that is asked for.
template <int sub>
static inline auto into_row(const Grouped& to, int64_t row) {
    return [to, row](int64_t group, const int8_t* q, const float* d) {
        if (!to.q) return;
        const int64_t at = row * to.groups + group;
        put_group<sub>(reinterpret_cast<uint8_t*>(to.q) + at * 16 * sub, to.d + 16 * at, to.m + 16 * at, q, d);
    };
}

static inline void quantise_row(const Input& in, int64_t row) {
    quantise_groups(in.x + row * in.cols, in.cols, into_row<32>(in.by32, row), into_row<16>(in.by16, row));
}

static inline size_t grouped_bytes(int64_t rows, int64_t cols, int sub) {
    return static_cast<size_t>(rows * groups_of(cols, sub)) * (16 * sub + 128);
}

// Places one layout's arrays at `at` (aligned to 64) and returns the end.
static inline uint8_t* place_grouped(Grouped& to, uint8_t* at, int64_t rows, int64_t cols, int sub) {
    to.groups = groups_of(cols, sub);
    const int64_t cells = rows * to.groups * 16;
    to.q = reinterpret_cast<int8_t*>(at);
    to.d = reinterpret_cast<float*>(at + cells * sub);
    to.m = reinterpret_cast<int32_t*>(at + cells * (sub + 4));
    return at + cells * (sub + 8);
}

}  // namespace strata::STRATA_ISA
