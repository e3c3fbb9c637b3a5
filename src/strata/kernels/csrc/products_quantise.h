// Activations as int8 blocks (docs/numerics.md 1.1) in the group layout: the C++ form of exact.py's quantise_rows.
#pragma once

#include <math.h>
#include <string.h>

#include "activation.h"
#include "products.h"

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

static inline void put_block(const Grouped& to, int64_t row, int64_t first, int sub, const int8_t* q, float d) {
    for (int part = 0; part < 32 / sub; ++part) {
        const int64_t index = first + part, group = index / 16, lane = index % 16;
        int8_t* codes = to.q + (row * to.groups + group) * 16 * sub + 4 * lane;
        int32_t sum = 0;
        for (int i = 0; i < sub; ++i) sum += q[part * sub + i];
        for (int step = 0; step < sub / 4; ++step) memcpy(codes + 64 * step, q + part * sub + 4 * step, 4);
        to.d[row * to.groups * 16 + index] = d;
        to.m[row * to.groups * 16 + index] = sum;
    }
}

static inline void clear_last_group(const Grouped& to, int64_t row, int sub) {
    const int64_t last = (row + 1) * to.groups - 1;
    memset(to.q + last * 16 * sub, 0, 16 * sub);
    memset(to.d + last * 16, 0, 64);
    memset(to.m + last * 16, 0, 64);
}

static inline void quantise_row(const Input& in, int64_t row) {
    if (in.by32.q) clear_last_group(in.by32, row, 32);
    if (in.by16.q) clear_last_group(in.by16, row, 16);
    const float* x = in.x + row * in.cols;
    for (int64_t block = 0; block < in.cols / 32; ++block) {
        alignas(64) int8_t q[32];
        const float d = quantise_block(x + 32 * block, q);
        if (in.by32.q) put_block(in.by32, row, block, 32, q, d);
        if (in.by16.q) put_block(in.by16, row, 2 * block, 16, q, d);
    }
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
