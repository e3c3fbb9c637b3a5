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

    // The sum of a row's lanes, its last values among them: a lane without one keeps its value.
    __attribute__((always_inline)) float end(int64_t row, int n, Floats16 low, Floats16 high) const {
        const int64_t cols = job.weight.cols, i = cols / 32 * 32;
        if (i == cols) return lane_tree(low, high);
        const uint8_t* b = job.weight.data + row * cols * Plain::bytes;
        const Factors factors(job.weight, row);
        alignas(64) float lane[32];
        store(lane, low);
        store(lane + 16, high);
        for (int64_t l = 0; i + l < cols; ++l) {
            const float value = factors.times(Plain::one(b + (i + l) * Plain::bytes), i + l);
            lane[l] = fmaf(value, x[n][i + l], lane[l]);
        }
        return lane_tree(lane);
    }

    void put(int64_t row, int64_t n, float y) const {
        job.out[n * job.stride + row - job.first] = job.weight.scale == 1.0f ? y : y * job.weight.scale;
    }

    void rows(int64_t first, int64_t last, int64_t from) const {
        const int64_t cols = job.weight.cols;
        for (int64_t row = first; row < last; ++row) {
            const uint8_t* b = job.weight.data + row * cols * Plain::bytes;
            const Factors factors(job.weight, row);
            Floats16 low[N], high[N];
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) low[n] = high[n] = no_floats();
            for (int64_t i = 0; i + 32 <= cols; i += 32) {
                ask(b + i * Plain::bytes + floats_ahead);
                sixteen(b, factors, i, low);
                sixteen(b, factors, i + 16, high);
            }
            for (int n = 0; n < N; ++n) put(row, from + n, end(row, n, low[n], high[n]));
        }
    }

    // For 32 values.
    __attribute__((always_inline)) static void ask(const uint8_t* b) {
        for (int64_t line = 0; line < 32 * Plain::bytes; line += 64) __builtin_prefetch(b + line, 0, 2);
    }
};

#if STRATA_AVX512

// Four weight rows at a time, one half of the lanes after the other: each vector of inputs is loaded for four weights.
// Zen 4, two threads: 5, 6 and 8 input rows of 2,048 columns take 0.65, 0.63 and 0.56 of the time of one weight row at
// a time with BF16, 0.75, 0.63 and 0.61 with F32; of 4,096 columns four rows 0.62 and 0.98, eight 0.50 and 0.71.
template <class Plain, class Factors, int N>
struct FloatTile : FloatKernel<Plain, Factors, N> {
    using FloatKernel<Plain, Factors, N>::FloatKernel;
    static constexpr int together = 4;

    template <int half>
    __attribute__((always_inline)) void lanes(int64_t row, Floats16 (&to)[together][N]) const {
        const int64_t cols = this->job.weight.cols, row_bytes = cols * Plain::bytes;
        const uint8_t* b = this->job.weight.data + row * row_bytes;
        const Factors factors[together] = {{this->job.weight, row},
                                           {this->job.weight, row + 1},
                                           {this->job.weight, row + 2},
                                           {this->job.weight, row + 3}};
        Floats16 acc[together][N];
#pragma GCC unroll 4
        for (int r = 0; r < together; ++r)
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) acc[r][n] = no_floats();
        for (int64_t i = 16 * half; i + 32 <= cols + 16 * half; i += 32) {
            Floats16 inputs[N];
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) inputs[n] = load_floats(this->x[n] + i);
#pragma GCC unroll 4
            for (int r = 0; r < together; ++r) {
                const uint8_t* at = b + r * row_bytes + i * Plain::bytes;
                if (half == 0) this->ask(at + together * row_bytes);
                const Floats16 values = factors[r].times(Plain::sixteen(at), i);
#pragma GCC unroll 4
                for (int n = 0; n < N; ++n) acc[r][n] = fused(values, inputs[n], acc[r][n]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < together; ++r)
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) to[r][n] = acc[r][n];
    }

    void rows(int64_t first, int64_t last, int64_t from) const {
        int64_t row = first;
        for (; row + together <= last; row += together) {
            Floats16 low[together][N], high[together][N];
            lanes<0>(row, low);
            lanes<1>(row, high);
            for (int r = 0; r < together; ++r)
                for (int n = 0; n < N; ++n) this->put(row + r, from + n, this->end(row + r, n, low[r][n], high[r][n]));
        }
        FloatKernel<Plain, Factors, N>::rows(row, last, from);
    }
};

#else

template <class Plain, class Factors, int N>
using FloatTile = FloatKernel<Plain, Factors, N>;

#endif

// Four input rows at most at a time; the others meet the same four weight rows in the cache.
template <template <class, class, int> class Kernel, class Plain, class Factors>
void in_fours(const FewRows& job) {
    const int64_t together = job.n > 4 ? 4 : job.last - job.first;
    for (int64_t first = job.first; first < job.last; first += together) {
        const int64_t last = first + together < job.last ? first + together : job.last;
        int64_t from = 0;
        for (; from + 4 <= job.n; from += 4) Kernel<Plain, Factors, 4>(job, from).rows(first, last, from);
        switch (job.n - from) {
            case 3: Kernel<Plain, Factors, 3>(job, from).rows(first, last, from); break;
            case 2: Kernel<Plain, Factors, 2>(job, from).rows(first, last, from); break;
            case 1: Kernel<Plain, Factors, 1>(job, from).rows(first, last, from); break;
        }
    }
}

// Bytes of inputs that the first-level cache holds: of so few each weight row may read all.
constexpr int64_t inputs_kept = 32 * 1024;

template <class Plain, class Factors>
void multiply(const FewRows& job) {
    if (job.n > 2 && job.n * job.weight.cols * 4 > inputs_kept) in_fours<FloatTile, Plain, Factors>(job);
    else in_fours<FloatKernel, Plain, Factors>(job);
}

}  // namespace

void few_f32(const FewRows& job) { multiply<PlainF32, NoFactors>(job); }
void few_f16(const FewRows& job) { multiply<PlainF16, NoFactors>(job); }
void few_bf16(const FewRows& job) { multiply<PlainBF16, NoFactors>(job); }
void few_e4m3(const FewRows& job) { multiply<PlainE4M3, NoFactors>(job); }
void few_e4m3_blocks(const FewRows& job) { multiply<PlainE4M3, BlockFactors>(job); }

}  // namespace strata::STRATA_ISA

#endif
