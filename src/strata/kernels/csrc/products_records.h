// Activations of many rows as records (docs/numerics.md 1.1): one per group of 16 sub-blocks, with everything that a
// tile reads of it side by side:
//
//     q int8 [step 0 .. sub / 4 - 1][sub-block 0 .. 15][4]      d float [16]      m int32 [16], the sums of q
//
// A row is a run of records: a tile follows one pointer per row. Missing sub-blocks of the last group are zeros.
#pragma once

#include <string.h>

#include "products_quantise.h"
#include "vector.h"

namespace strata::STRATA_ISA {

template <int sub>
constexpr int64_t record_bytes = 16 * sub + 128;

struct Records {
    uint8_t* data;  // null: no weight reads this size of sub-block
    int64_t groups;
    int64_t row_bytes;
    uint8_t* at(int64_t row) const { return data ? data + row * row_bytes : nullptr; }
};

static inline size_t records_bytes(int64_t rows, int64_t cols, int sub) {
    return static_cast<size_t>(rows * groups_of(cols, sub)) * (16 * sub + 128);
}

// Places the records of `rows` rows at `at` (aligned to 64) and returns the end.
static inline uint8_t* place_records(Records& to, uint8_t* at, int64_t rows, int64_t cols, int sub) {
    to.groups = groups_of(cols, sub);
    to.row_bytes = to.groups * (16 * sub + 128);
    to.data = at;
    return at + rows * to.row_bytes;
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

// One record from 16 sub-blocks of codes in order.
template <int sub>
static inline void put_record(uint8_t* record, const int8_t* q, const float* d) {
#if STRATA_VECTOR
    for (int part = 0; part < sub / 16; ++part) {
        auto piece = [&](int s) { return reinterpret_cast<const uint8_t*>(q) + sub * s + 16 * part; };
        auto four = [&](int k) { return lanes(piece(k), piece(4 + k), piece(8 + k), piece(12 + k)); };
        store_steps(record + 256 * part, four(0), four(1), four(2), four(3));
    }
#else
    for (int step = 0; step < sub / 4; ++step)
        for (int s = 0; s < 16; ++s) memcpy(record + 64 * step + 4 * s, q + sub * s + 4 * step, 4);
#endif
    int32_t sums[16];
    for (int s = 0; s < 16; ++s) {
        sums[s] = 0;
        for (int i = 0; i < sub; ++i) sums[s] += q[sub * s + i];
    }
    memcpy(record + 16 * sub, d, 64);
    memcpy(record + 16 * sub + 64, sums, 64);
}

// A row of `cols` values (a multiple of 32) into the layouts that are asked for.
static inline void quantise_records(const float* x, int64_t cols, uint8_t* by32, uint8_t* by16) {
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
        if (by32) {
            put_record<32>(by32, q, d);
            by32 += record_bytes<32>;
        }
        if (!by16) continue;
        for (int b = 0; b < 32; ++b) twice[b] = d[b / 2];
        for (int half = 0; half < 2 && first + 256 * half < cols; ++half, by16 += record_bytes<16>)
            put_record<16>(by16, q + 256 * half, twice + 16 * half);
    }
}

}  // namespace strata::STRATA_ISA
