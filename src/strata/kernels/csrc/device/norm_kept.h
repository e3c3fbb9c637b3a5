// Norms of many rows too long for norm.h's narrow form: a group of lanes keeps its whole row in registers, so that
// memory is read once; there are groups enough to wait for it. Bits as norm/naive.py. NORM_VALUES: values of a row for
// each lane.
#pragma once

#include "norm_rows.h"

namespace strata::STRATA_ISA {

constexpr int many_values = NORM_VALUES, many_width = 32 * many_values, many_threads = 128;
constexpr int many_beside = many_values <= 88 ? 4 : many_values <= 128 ? 3 : 2;  // blocks whose registers fit a processor

// The values of a row that a lane has: those at lane, lane + 32, ..
struct ManyValues {
    float v[many_values];
};

// No store lies between these reads, so all of them may be under way at once.
template <class Value>
STRATA_INLINE void read_row(ManyValues& row, const Value& value) {
    UNROLL
    for (int k = 0; k < many_values; ++k) row.v[k] = value(lane() + 32 * k);
}

STRATA_INLINE void put_row(const ManyValues& row, float* to) {
    UNROLL
    for (int k = 0; k < many_values; ++k) to[lane() + 32 * k] = row.v[k];
}

// out = (x r) w; a weight of one changes no bit.
STRATA_INLINE void put_norm(const ManyValues& row, const float* w, float* out, float eps) {
    constexpr int batch = 16;  // weights that are asked for at once
    float acc = 0.0f;
    UNROLL
    for (int k = 0; k < many_values; ++k) acc = fma(row.v[k], row.v[k], acc);
    const float r = reciprocal_root(lane_tree(acc) / static_cast<float>(many_width), eps);
    UNROLL
    for (int k0 = 0; k0 < many_values; k0 += batch) {
        float weights[batch];
        UNROLL
        for (int k = 0; k < batch; ++k)
            weights[k] = w != nullptr && k0 + k < many_values ? w[lane() + 32 * (k0 + k)] : 1.0f;
        UNROLL
        for (int k = 0; k < batch; ++k)
            if (k0 + k < many_values) out[lane() + 32 * (k0 + k)] = (row.v[k0 + k] * r) * weights[k];
    }
}

}  // namespace strata::STRATA_ISA
