// The lane rule (docs/numerics.md 1.2 - 1.5 and its float twin): dot products of decoded weight rows with activations.
#pragma once

#include "products_quantise.h"
#include "vector.h"

namespace strata::STRATA_ISA {

// A decoded weight row: codes in group layout, or floats in order.
struct Coded {
    const uint8_t* codes;
    const float* scales;
    const float* minima;
};

// Sum of 32 lanes: l and l + 16, then l + 8, + 4, + 2, + 1.
static inline float lane_tree(float* lane) {
    for (int half = 16; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
    return lane[0];
}

#if STRATA_AVX512

static inline float lane_tree(__m512 low, __m512 high) {
    const __m512 sixteen = _mm512_add_ps(low, high);
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sixteen), _mm512_extractf32x8_ps(sixteen, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

static inline float lane_tree(Floats16 low, Floats16 high) { return lane_tree(low.v, high.v); }

// The accumulators of one half of the lanes: the groups g = half, half + 2, ... in order. A half at a time, so that the
// accumulators and sums of a 4 x 2 tile fit in the registers.
template <int sub, bool minima, int R, int N>
static inline void half_lanes(const Coded* w, int offset, const Grouped& x, const int64_t* rows, int half,
                              __m512* acc) {
    const __m512i minus_offset = _mm512_set1_epi32(-offset);
    __m512 to[R * N];
#pragma GCC unroll 8
    for (int i = 0; i < R * N; ++i) to[i] = _mm512_setzero_ps();
    for (int64_t g = half; g < x.groups; g += 2) {
        const __m512i* q[N];
        __m512i sum[R * N];
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
            const int64_t group = rows[n] * x.groups + g;
            q[n] = reinterpret_cast<const __m512i*>(x.q + group * 16 * sub);
            const __m512i start = minima ? _mm512_setzero_si512()
                                         : _mm512_mullo_epi32(_mm512_loadu_si512(x.m + 16 * group), minus_offset);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sum[r * N + n] = start;
        }
#pragma GCC unroll 8
        for (int step = 0; step < sub / 4; ++step) {
            __m512i xs[N];
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) xs[n] = _mm512_loadu_si512(q[n] + step);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const __m512i codes = _mm512_loadu_si512(w[r].codes + (g * (sub / 4) + step) * 64);
#pragma GCC unroll 2
                for (int n = 0; n < N; ++n) sum[r * N + n] = _mm512_dpbusd_epi32(sum[r * N + n], codes, xs[n]);
            }
        }
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
            const int64_t group = rows[n] * x.groups + g;
            const __m512 d = _mm512_loadu_ps(x.d + 16 * group);
            const __m512 m = minima ? _mm512_cvtepi32_ps(_mm512_loadu_si512(x.m + 16 * group)) : d;
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                __m512& lane = to[r * N + n];
                const __m512 u = _mm512_mul_ps(_mm512_loadu_ps(w[r].scales + 16 * g), d);
                lane = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r * N + n]), u, lane);
                if (minima) lane = _mm512_fnmadd_ps(m, _mm512_mul_ps(_mm512_loadu_ps(w[r].minima + 16 * g), d), lane);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R * N; ++i) acc[i] = to[i];
}

// R weight rows with N activation rows: out[r * N + n].
template <int sub, bool minima, int R, int N>
static inline void dot_codes(const Coded* w, int offset, const Grouped& x, const int64_t* rows, float* out) {
    __m512 low[R * N], high[R * N];
    half_lanes<sub, minima, R, N>(w, offset, x, rows, 0, low);
    half_lanes<sub, minima, R, N>(w, offset, x, rows, 1, high);
    for (int i = 0; i < R * N; ++i) out[i] = lane_tree(low[i], high[i]);
}

// The float twin; a lane without an element in the last round keeps its value.
template <int R, int N>
static inline void dot_floats(const float* const* w, const float* const* x, int64_t cols, float* out) {
    __m512 acc[2][R][N];
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) acc[0][r][n] = acc[1][r][n] = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + 32 <= cols; i += 32)
        for (int half = 0; half < 2; ++half) {
            __m512 xs[N];
            for (int n = 0; n < N; ++n) xs[n] = _mm512_loadu_ps(x[n] + i + 16 * half);
            for (int r = 0; r < R; ++r) {
                const __m512 ws = _mm512_loadu_ps(w[r] + i + 16 * half);
                for (int n = 0; n < N; ++n) acc[half][r][n] = _mm512_fmadd_ps(ws, xs[n], acc[half][r][n]);
            }
        }
    for (int half = 0; half < 2 && i < cols; ++half, i += 16) {
        const __mmask16 mask = cols - i >= 16 ? 0xffff : static_cast<__mmask16>((1u << (cols - i)) - 1);
        for (int r = 0; r < R; ++r)
            for (int n = 0; n < N; ++n)
                acc[half][r][n] = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(mask, w[r] + i),
                                                        _mm512_maskz_loadu_ps(mask, x[n] + i), acc[half][r][n], mask);
    }
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) out[r * N + n] = lane_tree(acc[0][r][n], acc[1][r][n]);
}

#else

#if STRATA_AVX2

static inline float lane_tree(Floats16 low, Floats16 high) {
    alignas(32) float lane[32];
    store(lane, low);
    store(lane + 16, high);
    return lane_tree(lane);
}

// Eight sub-block sums of one half of a group. Codes up to 127 go through maddubs as they are (127 * 127 * 2 < 2^15);
// larger ones as signed numbers, |w| * (x with w's sign).
template <int sub, bool wide>
static inline __m256i half_sums(const uint8_t* codes, const int8_t* q) {
    __m256i sum = _mm256_setzero_si256();
    const __m256i one = _mm256_set1_epi16(1), flip = _mm256_set1_epi8(-128);
    for (int step = 0; step < sub / 4; ++step) {
        __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 64 * step));
        __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + 64 * step));
        if (wide) {
            w = _mm256_xor_si256(w, flip);
            x = _mm256_sign_epi8(x, w);
            w = _mm256_abs_epi8(w);
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), one));
    }
    return sum;
}

template <int sub, bool minima, bool wide>
static inline float dot_codes1(const Coded& w, int offset, const Grouped& x, int64_t row) {
    __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    const int8_t* q = x.q + row * x.groups * 16 * sub;
    const float* d = x.d + row * x.groups * 16;
    const int32_t* m = x.m + row * x.groups * 16;
    const __m256i by = _mm256_set1_epi32(offset);
    for (int64_t g = 0; g < x.groups; ++g)
        for (int half = 0; half < 2; ++half) {
            const int64_t at = 16 * g + 8 * half;
            __m256i sum = half_sums<sub, wide>(w.codes + g * 16 * sub + 32 * half, q + g * 16 * sub + 32 * half);
            const __m256i ones = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(m + at));
            if (!minima && !wide) sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(ones, by));
            const __m256 dx = _mm256_loadu_ps(d + at);
            __m256& to = acc[2 * (g & 1) + half];
            to = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(_mm256_loadu_ps(w.scales + at), dx), to);
            if (minima)
                to = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(ones), _mm256_mul_ps(_mm256_loadu_ps(w.minima + at), dx), to);
        }
    alignas(32) float lane[32];
    for (int i = 0; i < 4; ++i) _mm256_store_ps(lane + 8 * i, acc[i]);
    return lane_tree(lane);
}

template <int sub, bool minima>
static inline float dot_codes1(const Coded& w, int offset, const Grouped& x, int64_t row) {
    return offset == 128 ? dot_codes1<sub, minima, true>(w, offset, x, row)
                         : dot_codes1<sub, minima, false>(w, offset, x, row);
}

#else

template <int sub, bool minima>
static inline float dot_codes1(const Coded& w, int offset, const Grouped& x, int64_t row) {
    float lane[32] = {};
    const int8_t* q = x.q + row * x.groups * 16 * sub;
    const float* d = x.d + row * x.groups * 16;
    const int32_t* m = x.m + row * x.groups * 16;
    for (int64_t g = 0; g < x.groups; ++g) {
        int32_t sum[16] = {};
        for (int step = 0; step < sub / 4; ++step) {
            const int64_t at = (g * (sub / 4) + step) * 64;
            for (int i = 0; i < 64; ++i) sum[i / 4] += w.codes[at + i] * q[at + i];
        }
        float* to = lane + 16 * (g & 1);
        for (int l = 0; l < 16; ++l) {
            const int64_t at = 16 * g + l;
            to[l] = fmaf(static_cast<float>(sum[l] - (minima ? 0 : offset * m[at])), w.scales[at] * d[at], to[l]);
            if (minima) to[l] = fmaf(-static_cast<float>(m[at]), w.minima[at] * d[at], to[l]);
        }
    }
    return lane_tree(lane);
}

#endif

template <int sub, bool minima, int R, int N>
static inline void dot_codes(const Coded* w, int offset, const Grouped& x, const int64_t* rows, float* out) {
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) out[r * N + n] = dot_codes1<sub, minima>(w[r], offset, x, rows[n]);
}

template <int R, int N>
static inline void dot_floats(const float* const* w, const float* const* x, int64_t cols, float* out) {
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) {
            float lane[32] = {};
            int64_t i = 0;
            for (; i + 32 <= cols; i += 32)
                for (int l = 0; l < 32; ++l) lane[l] = fmaf(w[r][i + l], x[n][i + l], lane[l]);
            for (int l = 0; i + l < cols; ++l) lane[l] = fmaf(w[r][i + l], x[n][i + l], lane[l]);
            out[r * N + n] = lane_tree(lane);
        }
}

#endif

}  // namespace strata::STRATA_ISA
