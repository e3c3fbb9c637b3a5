// Some rows of one weight with some rows of the input: decoded once per block of weight rows, used for every input row.
#pragma once

#include <string.h>

#include "products_dot.h"
#include "products_few.h"

namespace strata::STRATA_ISA {

extern const Format formats[format_count];  // products_decode.cpp

constexpr int64_t decoded_rows = 4;               // weight rows decoded at once: they stay in the first-level cache
constexpr int64_t input_block_bytes = 24 * 1024;  // activations kept in the first-level cache meanwhile

// Scratch bytes that product_rows needs for weights of up to `cols` columns.
static inline size_t product_scratch(int64_t cols) {
    const int64_t groups = groups_of(cols, 16);  // of 256 values; groups of 512 take no more than one of these extra
    return static_cast<size_t>(decoded_rows) * (groups + 2) * 256 * sizeof(float);
}

// One tile: R weight rows times N input rows into out[n * stride + r].
struct CodedTile {
    const Coded* w;
    int offset;
    const Grouped& x;
    const int64_t* rows;
    template <int sub, bool minima, int R, int N>
    void run(float* out, int64_t stride) const {
        float y[R * N];
        dot_codes<sub, minima, R, N>(w, offset, x, rows, y);
        for (int r = 0; r < R; ++r)
            for (int n = 0; n < N; ++n) out[n * stride + r] = y[r * N + n];
    }
};

template <int sub, bool minima>
static void coded_block(const Coded* w, int64_t count, int offset, const Grouped& x, const int32_t* index, int64_t from,
                        int64_t to, float* out, int64_t stride) {
    for (int64_t r = 0; r < count; r += r + 4 <= count ? 4 : 1)
        for (int64_t n = from; n < to; n += n + 2 <= to ? 2 : 1) {
            const int64_t rows[2] = {index ? index[n] : n, n + 2 <= to ? (index ? index[n + 1] : n + 1) : 0};
            const CodedTile tile{w + r, offset, x, rows};
            float* at = out + n * stride + r;
            if (r + 4 <= count) {
                if (n + 2 <= to) tile.run<sub, minima, 4, 2>(at, stride);
                else tile.run<sub, minima, 4, 1>(at, stride);
            } else {
                if (n + 2 <= to) tile.run<sub, minima, 1, 2>(at, stride);
                else tile.run<sub, minima, 1, 1>(at, stride);
            }
        }
}

template <int R, int N>
static inline void float_tile(const float* const* w, const float* const* x, int64_t cols, float* out, int64_t stride) {
    float y[R * N];
    dot_floats<R, N>(w, x, cols, y);
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) out[n * stride + r] = y[r * N + n];
}

static inline void float_block(const float* const* w, int64_t count, const Input& in, const int32_t* index,
                               int64_t from, int64_t to, float* out, int64_t stride) {
    for (int64_t r = 0; r < count; r += r + 4 <= count ? 4 : 1)
        for (int64_t n = from; n < to; n += n + 2 <= to ? 2 : 1) {
            const float* x[2] = {in.x + (index ? index[n] : n) * in.cols, nullptr};
            if (n + 2 <= to) x[1] = in.x + (index ? index[n + 1] : n + 1) * in.cols;
            float* at = out + n * stride + r;
            if (r + 4 <= count) {
                if (n + 2 <= to) float_tile<4, 2>(w + r, x, in.cols, at, stride);
                else float_tile<4, 1>(w + r, x, in.cols, at, stride);
            } else {
                if (n + 2 <= to) float_tile<1, 2>(w + r, x, in.cols, at, stride);
                else float_tile<1, 1>(w + r, x, in.cols, at, stride);
            }
        }
}

// Where a weight row lies.
static inline const uint8_t* row_data(const WeightView& weight, int64_t row) {
    const Format& format = formats[weight.format];
    return weight.data + row * (weight.cols / format.block * format.bytes);
}

// Weight rows [first, last) with `n` input rows (index[i], or i without an index): out[i * stride + row - first].
// `next`: as in FewRows.
static inline void product_rows(const WeightView& weight, int64_t first, int64_t last, const Input& in,
                                const int32_t* index, int64_t n, float* out, int64_t stride, void* scratch,
                                const uint8_t* next) {
    const Format& format = formats[weight.format];
    const bool coded = format.sub != 0;
    const Grouped& x = format.sub == 16 ? in.by16 : in.by32;
    if (format.few) {
        for (int64_t from = 0; from < n; from += few_rows) {
            const int64_t some = n - from < few_rows ? n - from : few_rows, skip = index ? 0 : from;
            const int64_t cells = skip * x.groups * 16;
            format.few({weight, first, last, x.q + cells * format.sub, x.d + cells, x.m + cells, x.groups,
                        in.x + skip * in.cols, index ? index + from : nullptr, some, out + from * stride, stride,
                        scratch, from + some == n ? next : nullptr});
        }
        return;
    }
    const int64_t group_values = coded ? x.groups * 16 * format.sub : 0, row_bytes = group_values + 2 * 64 * x.groups;
    int64_t step = input_block_bytes / (coded ? row_bytes : 4 * in.cols + 1);
    step = step < 2 ? 2 : step / 2 * 2;
    for (int64_t base = first; base < last; base += decoded_rows) {
        const int64_t count = last - base < decoded_rows ? last - base : decoded_rows;
        Coded w[decoded_rows];
        const float* values[decoded_rows];
        for (int64_t r = 0; r < count; ++r) {
            if (coded) {
                uint8_t* codes = static_cast<uint8_t*>(scratch) + r * row_bytes;
                float* scales = reinterpret_cast<float*>(codes + group_values);
                w[r] = {codes, scales, scales + 16 * x.groups};
                format.codes(weight, base + r, codes, scales, scales + 16 * x.groups);
            } else if (weight.format == 0 && reinterpret_cast<uintptr_t>(weight.data) % 4 == 0) {  // F32 as it lies
                values[r] = reinterpret_cast<const float*>(weight.data) + (base + r) * in.cols;
            } else {
                float* row = static_cast<float*>(scratch) + r * in.cols;
                format.floats(weight, base + r, row);
                values[r] = row;
            }
        }
        for (int64_t from = 0; from < n; from += step) {
            const int64_t to = from + step < n ? from + step : n;
            float* at = out + base - first;
            if (!coded) float_block(values, count, in, index, from, to, at, stride);
            else if (format.sub == 32 && format.minima)
                coded_block<32, true>(w, count, format.offset, x, index, from, to, at, stride);
            else if (format.sub == 32)
                coded_block<32, false>(w, count, format.offset, x, index, from, to, at, stride);
            else if (format.minima)
                coded_block<16, true>(w, count, format.offset, x, index, from, to, at, stride);
            else coded_block<16, false>(w, count, format.offset, x, index, from, to, at, stride);
        }
        if (weight.scale != 1.0f)
            for (int64_t i = 0; i < n; ++i)
                for (int64_t r = 0; r < count; ++r) out[i * stride + base - first + r] *= weight.scale;
    }
}

// The end of a call of experts for output rows [first, first + count): `from` [pairs, count] holds them for every pair.
static inline void finish_experts(const ExpertsJob& job, const float* from, int64_t first, int64_t count) {
    for (int64_t row = 0; row < job.rows; ++row) {
        float* y = job.outputs ? nullptr : job.y + row * job.hidden + first;
        if (y)
            for (int64_t r = 0; r < count; ++r) y[r] = 0.0f;
        for (int rank = 0; rank < job.top_k; ++rank) {
            const int64_t entry = row * job.top_k + rank;
            if (job.place[entry] < 0) continue;
            const float* one = from + job.place[entry] * count;
            if (y) {
                for (int64_t r = 0; r < count; ++r) y[r] = fmaf(job.factors[entry], one[r], y[r]);
            } else {
                memcpy(job.outputs + entry * job.hidden + first, one, static_cast<size_t>(count) * sizeof(float));
            }
        }
    }
}

}  // namespace strata::STRATA_ISA
