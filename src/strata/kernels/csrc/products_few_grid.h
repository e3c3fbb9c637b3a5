// Products of few input rows with the grid formats in AVX-512: the kernel of products_few.h for codes in strided order
// (products_grid512.h). The activations are brought into that order once per call, for all its weight rows.
#pragma once

#include "products_few_kernel.h"
#include "products_grid512.h"

#if STRATA_AVX512

namespace strata::STRATA_ISA {

// The job's activations in strided order: row n's groups from to + n * groups * 16 * sub on.
template <int sub>
static inline void stride_inputs(const FewRows& job, int8_t* to) {
    for (int64_t n = 0; n < job.n; ++n) {
        const int8_t* from = job.q + (job.index ? job.index[n] : n) * job.groups * 16 * sub;
        for (int64_t g = 0; g < job.groups; ++g, from += 16 * sub, to += 16 * sub)
            for (int part = 0; part < sub / 16; ++part) {
                __m512i in[4], out[4];
                for (int i = 0; i < 4; ++i) in[i] = _mm512_loadu_si512(from + 64 * (sub / 16 * i + part));
                transpose4(in, out);
                for (int i = 0; i < 4; ++i) _mm512_storeu_si512(to + 64 * (4 * part + i), out[i]);
            }
    }
}

template <class F, int N>
struct GridKernel {
    static constexpr int64_t values = 16 * F::sub;
    static constexpr int steps = F::sub / 4, groups = 8 / steps;  // of 512 values

    // One group with its codes into the half of the lanes that acc holds; cell[n] is input row n's place in groups.
    STRATA_INSIDE void group(const __m512i* code, __m512 scale, const FewRows& job, const int8_t* q,
                             const int64_t* cell, int64_t g, __m512* acc) {
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            const __m512i ones = _mm512_loadu_si512(job.m + 16 * (cell[n] + g));
            __m512i even = _mm512_mullo_epi32(ones, _mm512_set1_epi32(-F::offset)), odd = _mm512_setzero_si512();
            const int8_t* x = q + (n * job.groups + g) * values;
#pragma GCC unroll 4
            for (int step = 0; step < steps; step += 2) {
                even = _mm512_dpbusd_epi32(even, code[step], _mm512_loadu_si512(x + 64 * step));
                odd = _mm512_dpbusd_epi32(odd, code[step + 1], _mm512_loadu_si512(x + 64 * step + 64));
            }
            const __m512 u = _mm512_mul_ps(scale, _mm512_loadu_ps(job.d + 16 * (cell[n] + g)));
            acc[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)), u, acc[n]);
        }
    }

    // Weight rows first .. last - 1 of the job with input rows from .. from + N - 1, q being theirs in strided order.
    static void rows(const FewRows& job, const int8_t* q, int64_t first, int64_t last, int64_t from) {
        static constexpr uint8_t zeros[F::bytes] = {};  // fills a last group of 512: a scale of 0, which meets d = 0
        const int64_t count = job.weight.cols / 256;
        int64_t cell[N];
        for (int n = 0; n < N; ++n) cell[n] = (job.index ? job.index[from + n] : from + n) * job.groups;
        const uint8_t* b = job.weight.data + first * count * F::bytes;
        Ahead ahead(job, count * F::bytes, first, last);
        for (int64_t row = first; row < last; ++row) {
            __m512 acc[N], other[N];  // the half of the lanes that the next group belongs to, and the one after it
            for (int n = 0; n < N; ++n) acc[n] = other[n] = _mm512_setzero_ps();
            for (int64_t block = 0; block < count; block += 2) {
                const bool both = block + 2 <= count;
                const uint8_t* c = both ? b + F::bytes : zeros;
                ahead.ask(2 * F::bytes);
                __m512i code[8];
                __m512 scale[2];
                GridVectors<F>::codes(b, c, code);
                GridVectors<F>::scales(b, c, scale);
                group(code, scale[0], job, q, cell, block / (2 / groups), acc);
                if (groups == 1) {
                    for (int n = 0; n < N; ++n) {
                        const __m512 done = acc[n];
                        acc[n] = other[n];
                        other[n] = done;
                    }
                } else if (both) {
                    group(code + steps, scale[1], job, q, cell, block + 1, other);
                }
                b += both ? 2 * F::bytes : F::bytes;
            }
            for (int n = 0; n < N; ++n) {
                const bool swapped = groups == 1 && job.groups % 2;
                const float y = swapped ? lane_tree(other[n], acc[n]) : lane_tree(acc[n], other[n]);
                float& out = job.out[(from + n) * job.stride + row - job.first];
                out = job.weight.scale == 1.0f ? y : y * job.weight.scale;
            }
        }
    }
};

// Bytes of activations that stay in the first-level cache: with 32 KiB eight rows took up to 1.15 of two fours' time.
constexpr int64_t inputs_kept = 24 * 1024;

// All rows of a job; q has them in the order of `Kernel`. Five to eight share the decoding (6 and 8 rows of 2,048
// columns in 0.78 and 0.88 of the time of four and the rest with IQ3_S, 0.67 and 0.77 with IQ2_S); otherwise four do,
// and the others meet the same weight rows in the cache.
template <template <int> class Kernel>
static inline void all_rows(const FewRows& job, const int8_t* q, int64_t row_bytes) {
    if (job.n * row_bytes <= inputs_kept) switch (job.n) {
        case 5: return Kernel<5>::rows(job, q, job.first, job.last, 0);
        case 6: return Kernel<6>::rows(job, q, job.first, job.last, 0);
        case 7: return Kernel<7>::rows(job, q, job.first, job.last, 0);
        case 8: return Kernel<8>::rows(job, q, job.first, job.last, 0);
    }
    const int64_t together = job.n > 4 ? 8 : job.last - job.first;
    for (int64_t first = job.first; first < job.last; first += together) {
        const int64_t last = first + together < job.last ? first + together : job.last;
        int64_t from = 0;
        for (; from + 4 <= job.n; from += 4) Kernel<4>::rows(job, q + from * row_bytes, first, last, from);
        const int8_t* rest = q + from * row_bytes;
        switch (job.n - from) {
            case 3: Kernel<3>::rows(job, rest, first, last, from); break;
            case 2: Kernel<2>::rows(job, rest, first, last, from); break;
            case 1: Kernel<1>::rows(job, rest, first, last, from); break;
        }
    }
}

template <class F>
struct GridRows {
    template <int N>
    using Kernel = GridKernel<F, N>;
};

template <class F>
static inline void grid_rows(const FewRows& job) {
    int8_t* q = static_cast<int8_t*>(job.scratch);
    stride_inputs<F::sub>(job, q);
    all_rows<GridRows<F>::template Kernel>(job, q, job.groups * 16 * F::sub);
}

}  // namespace strata::STRATA_ISA

#endif
