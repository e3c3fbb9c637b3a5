// The kernel of products_few.h; each products_few_*.cpp makes it for some formats.
#pragma once

#include "products_dot.h"
#include "products_few.h"
#include "products_group.h"

#if STRATA_VECTOR

namespace strata::STRATA_ISA {

// Bytes between what is multiplied and what is asked for, into the second-level cache: the hardware's prefetchers stop
// at the end of each 4 KiB page. Two threads read 28 GB/s of Q4_K so; 25 with 2048 into the first level, 18 without.
constexpr int64_t few_ahead = 4096;

static inline float lane_tree(Floats16 low, Floats16 high) {
#if STRATA_AVX512
    return lane_tree(low.v, high.v);
#else
    alignas(32) float lane[32];
    store(lane, low);
    store(lane + 16, high);
    return lane_tree(lane);
#endif
}

template <class F, int N>
struct FewKernel {
    static constexpr int64_t values = 16 * F::sub, blocks = values / F::block, bytes = blocks * F::bytes;
    static constexpr bool wide = F::offset == 128;

    // One group into one half of the lanes of each input row; cell[n] is the row's place in groups.
    __attribute__((always_inline)) static inline void group(const uint8_t* b, const FewRows& x, const int64_t* cell,
                                                            Floats16* acc) {
        const StepGroup<F> group(b);
        Ints16 sum[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) sum[n] = no_ints();
        group.codes([&](int step, Bytes64 codes) {
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) sum[n] = dot4<wide>(sum[n], codes, x.q + cell[n] * values + 64 * step);
        });
        const Floats16 scale = group.scales();
        Floats16 minimum;
        if constexpr (F::minima) minimum = group.minima();
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
            const Floats16 d = load_floats(x.d + 16 * cell[n]);
            const Ints16 ones = load_ints(x.m + 16 * cell[n]);
            if (!F::minima && !(wide && signed_codes)) sum[n] = sum[n] - ones * F::offset;
            acc[n] = fused(floats_of(sum[n]), scale * d, acc[n]);
            if constexpr (F::minima) acc[n] = minus_fused(floats_of(ones), minimum * d, acc[n]);
        }
    }

    // Weight rows first .. last - 1 of the job with input rows from .. from + N - 1.
    static void rows(const FewRows& job, int64_t first, int64_t last, int64_t from) {
        const int64_t count = job.weight.cols / F::block, whole = count / blocks, rest = count % blocks * F::bytes;
        int64_t start[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) start[n] = (job.index ? job.index[from + n] : from + n) * job.groups;
        const uint8_t* b = job.weight.data + first * count * F::bytes;
        for (int64_t row = first; row < last; ++row, b += rest) {
            Floats16 acc[N], other[N];  // the half of the lanes that the next group belongs to, and the one after it
            int64_t cell[N];
            uint8_t filled[bytes];
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) {
                acc[n] = other[n] = no_floats();
                cell[n] = start[n];
            }
            for (int64_t g = 0; g < job.groups; ++g) {
                const uint8_t* at = b;
                for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(b + few_ahead + line, 0, 2);
                if (g == whole) {  // blocks of zeros fill it: finite scales, which meet activations that are 0
                    memset(filled, 0, bytes);
                    memcpy(filled, b, static_cast<size_t>(rest));
                    at = filled;
                } else {
                    b += bytes;
                }
                group(at, job, cell, acc);
#pragma GCC unroll 4
                for (int n = 0; n < N; ++n) {
                    ++cell[n];
                    const Floats16 done = acc[n];
                    acc[n] = other[n];
                    other[n] = done;
                }
            }
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) {
                const float y = job.groups % 2 ? lane_tree(other[n], acc[n]) : lane_tree(acc[n], other[n]);
                float& out = job.out[(from + n) * job.stride + row - job.first];
                out = job.weight.scale == 1.0f ? y : y * job.weight.scale;
            }
        }
    }
};

// Four input rows at most at a time (their sums stay in registers); the others meet the same weight rows in the cache.
template <class F>
void multiply_few(const FewRows& job) {
    const int64_t together = job.n > 4 ? 8 : job.last - job.first;
    for (int64_t first = job.first; first < job.last; first += together) {
        const int64_t last = first + together < job.last ? first + together : job.last;
        int64_t from = 0;
        for (; from + 4 <= job.n; from += 4) FewKernel<F, 4>::rows(job, first, last, from);
        switch (job.n - from) {
            case 3: FewKernel<F, 3>::rows(job, first, last, from); break;
            case 2: FewKernel<F, 2>::rows(job, first, last, from); break;
            case 1: FewKernel<F, 1>::rows(job, first, last, from); break;
        }
    }
}

}  // namespace strata::STRATA_ISA

#else

namespace strata::STRATA_ISA {

template <class F>
void multiply_few(const FewRows&) {}

}  // namespace strata::STRATA_ISA

#endif
