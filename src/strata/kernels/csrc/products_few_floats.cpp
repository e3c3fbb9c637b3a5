// Products of few input rows with weights that hold plain floats: values go from the packed bytes through registers
// into the sums of every input row, by the lane rule's float twin (docs/numerics.md).
#include "products_few_floats.h"

#include "products_dot.h"
#include "products_floats.h"

#if STRATA_VECTOR

namespace strata::STRATA_ISA {
namespace {

// As in products_few_kernel.h: bytes between what is multiplied and what is asked for.
constexpr int64_t floats_ahead = 4096;

// Factors of a weight row: one for every 128 values, or none.
struct NoFactors {
    NoFactors(const WeightView&, int64_t) {}
    Floats16 times(Floats16 values, int64_t) const { return values; }
    float times(float value, int64_t) const { return value; }
};
struct BlockFactors {
    const uint8_t* at;
    BlockFactors(const WeightView& weight, int64_t row)
        : at(weight.scales + 4 * (row / 128 * ((weight.cols + 127) / 128))) {}
    float factor(int64_t i) const { return float_of_bits(read32(at + 4 * (i / 128))); }
    Floats16 times(Floats16 values, int64_t i) const {
        const float by = factor(i);
        return values * two_floats(by, by);
    }
    float times(float value, int64_t i) const { return value * factor(i); }
};

template <class Plain, class Factors, int N>
struct FloatKernel {
    const FewRows& job;
    const float* x[N];

    FloatKernel(const FewRows& of, int64_t from) : job(of) {
        for (int n = 0; n < N; ++n) x[n] = of.x + (of.index ? of.index[from + n] : from + n) * of.weight.cols;
    }

    __attribute__((always_inline)) void sixteen(const uint8_t* b, const Factors& factors, int64_t i,
                                                Floats16* acc) const {
        const Floats16 values = factors.times(Plain::sixteen(b + i * Plain::bytes), i);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) acc[n] = fused(values, load_floats(x[n] + i), acc[n]);
    }

    // One weight row with N input rows into y.
    __attribute__((always_inline)) void row(int64_t row, float* y) const {
        const int64_t cols = job.weight.cols;
        const uint8_t* b = job.weight.data + row * cols * Plain::bytes;
        const Factors factors(job.weight, row);
        Floats16 low[N], high[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) low[n] = high[n] = no_floats();
        int64_t i = 0;
        for (; i + 32 <= cols; i += 32) {
            for (int64_t line = 0; line < 32 * Plain::bytes; line += 64)
                __builtin_prefetch(b + i * Plain::bytes + floats_ahead + line, 0, 2);
            sixteen(b, factors, i, low);
            sixteen(b, factors, i + 16, high);
        }
        if (i == cols) {
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) y[n] = lane_tree(low[n], high[n]);
            return;
        }
        for (int n = 0; n < N; ++n) {  // a lane without an element in the last round keeps its value
            alignas(64) float lane[32];
            store(lane, low[n]);
            store(lane + 16, high[n]);
            for (int64_t l = 0; i + l < cols; ++l) {
                const float value = factors.times(Plain::one(b + (i + l) * Plain::bytes), i + l);
                lane[l] = fmaf(value, x[n][i + l], lane[l]);
            }
            y[n] = lane_tree(lane);
        }
    }

    void rows(int64_t first, int64_t last, int64_t from) const {
        for (int64_t r = first; r < last; ++r) {
            float y[N];
            row(r, y);
            for (int n = 0; n < N; ++n)
                job.out[(from + n) * job.stride + r - job.first] =
                    job.weight.scale == 1.0f ? y[n] : y[n] * job.weight.scale;
        }
    }
};

// Four input rows at most at a time; the others meet the same four weight rows in the cache.
template <class Plain, class Factors>
void multiply(const FewRows& job) {
    const int64_t together = job.n > 4 ? 4 : job.last - job.first;
    for (int64_t first = job.first; first < job.last; first += together) {
        const int64_t last = first + together < job.last ? first + together : job.last;
        int64_t from = 0;
        for (; from + 4 <= job.n; from += 4) FloatKernel<Plain, Factors, 4>(job, from).rows(first, last, from);
        switch (job.n - from) {
            case 3: FloatKernel<Plain, Factors, 3>(job, from).rows(first, last, from); break;
            case 2: FloatKernel<Plain, Factors, 2>(job, from).rows(first, last, from); break;
            case 1: FloatKernel<Plain, Factors, 1>(job, from).rows(first, last, from); break;
        }
    }
}

}  // namespace

void few_f32(const FewRows& job) { multiply<PlainF32, NoFactors>(job); }
void few_f16(const FewRows& job) { multiply<PlainF16, NoFactors>(job); }
void few_bf16(const FewRows& job) { multiply<PlainBF16, NoFactors>(job); }
void few_e4m3(const FewRows& job) { multiply<PlainE4M3, NoFactors>(job); }
void few_e4m3_blocks(const FewRows& job) { multiply<PlainE4M3, BlockFactors>(job); }

}  // namespace strata::STRATA_ISA

#endif
