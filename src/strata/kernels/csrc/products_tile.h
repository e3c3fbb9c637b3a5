// The inner tile of products with many rows of input: a panel of four decoded weight rows with one or two rows of
// records, by the lane rule (docs/numerics.md 1.2 - 1.5).
//
// A lane of a vector is a sub-block, so that 16 sums need no shuffle. On Zen 4 the multiply pipes bound a tile: per 16
// sub-blocks of 32 and pair of rows 8 integer dots, a product of scales and an fma (with minima one more of each), so
// 184 (154) G multiply-adds a second and core at 3.6 GHz; with everything in the cache it reaches 170 (139).
#pragma once

#include "products_dot.h"
#include "products_records.h"

namespace strata::STRATA_ISA {

constexpr int panel_rows = 4;

// Four decoded rows, a group of all of them after the other: codes [4][16 * sub], scales [4][16], minima [4][16].
template <int sub>
constexpr int64_t panel_group_bytes = panel_rows * (16 * sub + 128);

#if STRATA_AVX512

// Lane i: the tree over the 16 lanes of v[i], for 8 vectors.
__attribute__((always_inline)) static inline __m256 tree8(const __m512* v) {
    __m512 a[4], b[2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
        a[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, v[i], v[i + 4]), _mm512_shuffle_f32x4(v[i], v[i + 4], 0x4e));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        const __m512 turned = _mm512_mask_blend_ps(0xf0f0, a[i + 2], a[i]);
        b[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, a[i], a[i + 2]), _mm512_shuffle_f32x4(turned, turned, 0xb1));
    }
    const __m512d x = _mm512_castps_pd(b[0]), y = _mm512_castps_pd(b[1]);
    const __m512 pairs =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    const __m512 sums = _mm512_add_ps(pairs, _mm512_movehdup_ps(pairs));
    return _mm256_castsi256_ps(_mm512_cvtepi64_epi32(_mm512_castps_si512(sums)));
}

// The lanes of one half, from the groups first, first + 2, ...: to[4 * n + r].
template <int sub, bool minima, int N>
__attribute__((always_inline)) static inline void half_tile(const uint8_t* w, int offset, const uint8_t* const* x,
                                                            int64_t groups, __m512* to) {
    const __m512i by = _mm512_set1_epi32(offset);
#pragma GCC unroll 8
    for (int i = 0; i < 4 * N; ++i) to[i] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g += 2) {
        const uint8_t* codes = w + g * panel_group_bytes<sub>;
        const float* scales = reinterpret_cast<const float*>(codes + panel_rows * 16 * sub);
        const int64_t record = g * record_bytes<sub>;
        __m512i sum[4 * N];
#pragma GCC unroll 8
        for (int i = 0; i < 4 * N; ++i) sum[i] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int step = 0; step < sub / 4; ++step) {
            __m512i q[N];
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) q[n] = _mm512_load_si512(x[n] + record + 64 * step);
#pragma GCC unroll 4
            for (int r = 0; r < 4; ++r) {
                const __m512i c = _mm512_load_si512(codes + r * 16 * sub + 64 * step);
#pragma GCC unroll 2
                for (int n = 0; n < N; ++n) sum[4 * n + r] = _mm512_dpbusd_epi32(sum[4 * n + r], c, q[n]);
            }
        }
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
            const __m512 d = _mm512_load_ps(x[n] + record + 16 * sub);
            const __m512i sums = _mm512_load_si512(x[n] + record + 16 * sub + 64);
            const __m512 m = _mm512_cvtepi32_ps(sums);
            const __m512i surplus = _mm512_mullo_epi32(sums, by);
#pragma GCC unroll 4
            for (int r = 0; r < 4; ++r) {
                const __m512 u = _mm512_mul_ps(_mm512_load_ps(scales + 16 * r), d);
                __m512& lane = to[4 * n + r];
                if (!minima) sum[4 * n + r] = _mm512_sub_epi32(sum[4 * n + r], surplus);
                lane = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[4 * n + r]), u, lane);
                const __m512 v = minima ? _mm512_mul_ps(_mm512_load_ps(scales + 64 + 16 * r), d) : u;
                if (minima) lane = _mm512_fnmadd_ps(m, v, lane);
            }
        }
    }
}

// A last group of at most 8 sub-blocks, in half vectors: at 768 columns that is a quarter of the work saved.
template <int sub, bool minima, int N>
__attribute__((always_inline)) static inline void narrow_group(const uint8_t* w, int offset, const uint8_t* const* x,
                                                               __m512* to) {
    auto load = [](const void* from) { return _mm256_load_si256(static_cast<const __m256i*>(from)); };
    auto floats = [](const void* from) { return _mm256_load_ps(static_cast<const float*>(from)); };
    const uint8_t* scales = w + panel_rows * 16 * sub;
    __m256i sum[4 * N];
#pragma GCC unroll 8
    for (int i = 0; i < 4 * N; ++i) sum[i] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int step = 0; step < sub / 4; ++step)
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r)
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n)
                sum[4 * n + r] =
                    _mm256_dpbusd_epi32(sum[4 * n + r], load(w + r * 16 * sub + 64 * step), load(x[n] + 64 * step));
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
        const __m256 d = floats(x[n] + 16 * sub);
        const __m256i sums = load(x[n] + 16 * sub + 64), surplus = _mm256_mullo_epi32(sums, _mm256_set1_epi32(offset));
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
            __m512& lane = to[4 * n + r];
            const __m256i i_b = minima ? sum[4 * n + r] : _mm256_sub_epi32(sum[4 * n + r], surplus);
            __m256 low = _mm512_castps512_ps256(lane);
            low = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i_b), _mm256_mul_ps(floats(scales + 64 * r), d), low);
            if (minima)
                low = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(floats(scales + 256 + 64 * r), d), low);
            lane = _mm512_insertf32x8(lane, low, 0);
        }
    }
}

// out[16 * n + r]: the product of weight row r of the panel with the records x[n] of `cols` values.
template <int sub, bool minima, int N>
__attribute__((always_inline)) static inline void tile(const uint8_t* panel, int offset, const uint8_t* const* x,
                                                       int64_t cols, float* out) {
    const int64_t whole = (cols + 8 * sub - 1) / (16 * sub), groups = groups_of(cols, sub);
    __m512 lanes[8], high[8];
    const uint8_t *second[N], *last[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) second[n] = x[n] + record_bytes<sub>, last[n] = x[n] + whole * record_bytes<sub>;
    const uint8_t* last_panel = panel + whole * panel_group_bytes<sub>;
    half_tile<sub, minima, N>(panel, offset, x, whole, lanes);
    if (groups > whole && whole % 2 == 0) narrow_group<sub, minima, N>(last_panel, offset, last, lanes);
    if (groups > 1) {
        half_tile<sub, minima, N>(panel + panel_group_bytes<sub>, offset, second, whole - 1, high);
        if (groups > whole && whole % 2) narrow_group<sub, minima, N>(last_panel, offset, last, high);
#pragma GCC unroll 8
        for (int i = 0; i < 4 * N; ++i) lanes[i] = _mm512_add_ps(lanes[i], high[i]);
    }
    if (N == 1)
        for (int i = 4; i < 8; ++i) lanes[i] = _mm512_setzero_ps();
    const __m256 sums = tree8(lanes);
    _mm_storeu_ps(out, _mm256_castps256_ps128(sums));
    if (N == 2) _mm_storeu_ps(out + 16, _mm256_extractf128_ps(sums, 1));
}

#elif STRATA_AVX2

// Eight lanes (a half of a half) of rows `row` and `row` + 1 of the panel: to[2 * n + r]. The sums are those of
// half_sums; `wide` is for codes up to 255, which are taken as the signed numbers they stand for (their offset is 128).
template <int sub, bool minima, bool wide, int N>
static inline void part_tile(const uint8_t* w, int offset, const uint8_t* const* x, int64_t groups, int row, int part,
                             __m256* to) {
    const __m256i one = _mm256_set1_epi16(1), flip = _mm256_set1_epi8(-128), by = _mm256_set1_epi32(offset);
    auto load = [](const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); };
    auto floats = [](const void* from) { return _mm256_loadu_ps(static_cast<const float*>(from)); };
#pragma GCC unroll 4
    for (int i = 0; i < 2 * N; ++i) to[i] = _mm256_setzero_ps();
    for (int64_t g = part / 2; g < groups; g += 2) {
        const uint8_t* codes = w + g * panel_group_bytes<sub> + part % 2 * 32 + row * 16 * sub;
        const uint8_t* scales = w + g * panel_group_bytes<sub> + panel_rows * 16 * sub + part % 2 * 32 + row * 64;
        const int64_t record = g * record_bytes<sub> + part % 2 * 32;
        __m256i sum[2 * N];
#pragma GCC unroll 4
        for (int i = 0; i < 2 * N; ++i) sum[i] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int step = 0; step < sub / 4; ++step) {
#pragma GCC unroll 2
            for (int r = 0; r < 2; ++r) {
                __m256i c = load(codes + r * 16 * sub + 64 * step), size = c;
                if (wide) c = _mm256_xor_si256(c, flip), size = _mm256_abs_epi8(c);
#pragma GCC unroll 2
                for (int n = 0; n < N; ++n) {
                    const __m256i q = load(x[n] + record + 64 * step);
                    const __m256i pairs = _mm256_maddubs_epi16(size, wide ? _mm256_sign_epi8(q, c) : q);
                    sum[2 * n + r] = _mm256_add_epi32(sum[2 * n + r], _mm256_madd_epi16(pairs, one));
                }
            }
        }
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
            const __m256 d = floats(x[n] + record + 16 * sub);
            const __m256i sums = load(x[n] + record + 16 * sub + 64);
#pragma GCC unroll 2
            for (int r = 0; r < 2; ++r) {
                __m256i i_b = sum[2 * n + r];
                if (!minima && !wide) i_b = _mm256_sub_epi32(i_b, _mm256_mullo_epi32(sums, by));
                __m256& lane = to[2 * n + r];
                const __m256 u = _mm256_mul_ps(floats(scales + 64 * r), d);
                lane = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i_b), u, lane);
                const __m256 v = minima ? _mm256_mul_ps(floats(scales + 256 + 64 * r), d) : u;
                if (minima) lane = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(sums), v, lane);
            }
        }
    }
}

template <int sub, bool minima, bool wide, int N>
static inline void tile_of(const uint8_t* panel, int offset, const uint8_t* const* x, int64_t groups, float* out) {
    for (int row = 0; row < panel_rows; row += 2) {
        __m256 lanes[4][2 * N];
        for (int part = 0; part < 4; ++part)
            part_tile<sub, minima, wide, N>(panel, offset, x, groups, row, part, lanes[part]);
        for (int i = 0; i < 2 * N; ++i) {
            const __m256 low = _mm256_add_ps(lanes[0][i], lanes[2][i]), high = _mm256_add_ps(lanes[1][i], lanes[3][i]);
            const __m256 eight = _mm256_add_ps(low, high);
            __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
            four = _mm_add_ps(four, _mm_movehl_ps(four, four));
            out[16 * (i / 2) + row + i % 2] = _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
        }
    }
}

template <int sub, bool minima, int N>
static inline void tile(const uint8_t* panel, int offset, const uint8_t* const* x, int64_t cols, float* out) {
    const int64_t groups = groups_of(cols, sub);
    if (offset == 128) tile_of<sub, minima, true, N>(panel, offset, x, groups, out);
    else tile_of<sub, minima, false, N>(panel, offset, x, groups, out);
}

#else

template <int sub, bool minima, int N>
static inline void tile(const uint8_t* panel, int offset, const uint8_t* const* x, int64_t cols, float* out) {
    const int64_t groups = groups_of(cols, sub);
    for (int n = 0; n < N; ++n)
        for (int r = 0; r < panel_rows; ++r) {
            float lane[32] = {};
            for (int64_t g = 0; g < groups; ++g) {
                const uint8_t *group = panel + g * panel_group_bytes<sub>, *record = x[n] + g * record_bytes<sub>;
                const uint8_t* codes = group + r * 16 * sub;
                const float* scales = reinterpret_cast<const float*>(group + panel_rows * 16 * sub) + 16 * r;
                const float* d = reinterpret_cast<const float*>(record + 16 * sub);
                const int32_t* m = reinterpret_cast<const int32_t*>(d + 16);
                int32_t sum[16] = {};
                for (int i = 0; i < 16 * sub; ++i) sum[i % 64 / 4] += codes[i] * static_cast<int8_t>(record[i]);
                for (int l = 0; l < 16; ++l) {
                    float& to = lane[16 * (g & 1) + l];
                    to = fmaf(static_cast<float>(sum[l] - (minima ? 0 : offset * m[l])), scales[l] * d[l], to);
                    if (minima) to = fmaf(-static_cast<float>(m[l]), scales[64 + l] * d[l], to);
                }
            }
            out[16 * n + r] = lane_tree(lane);
        }
}

#endif

}  // namespace strata::STRATA_ISA
