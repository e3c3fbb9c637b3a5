// rope and rope_angles: one thread a pair of values; bits as rope/naive.py.
#pragma once

#include "device.h"

#include "../angles.h"

namespace strata::STRATA_ISA {

// Turns the pair of angle i of head `unit` and copies what is not turned, a pair per further thread.
STRATA_INLINE void turn(const float* x, const float* cos, const float* sin, float* y, int64_t count, int64_t heads,
                        int64_t dim, int64_t half, int64_t step, int64_t apart) {
    const int64_t pairs = (dim + 1) / 2, number = element();
    if (number >= count * pairs) return;
    const int64_t unit = number / pairs, i = number % pairs;
    const float* from = x + unit * dim;
    float* to = y + unit * dim;
    if (i < half) {
        const float c = cos[unit / heads * half + i], s = sin[unit / heads * half + i];
        const float a = from[i * step], b = from[i * step + apart];
        to[i * step] = a * c - b * s;
        to[i * step + apart] = b * c + a * s;
    } else {
        to[2 * i] = from[2 * i];
        if (2 * i + 1 < dim) to[2 * i + 1] = from[2 * i + 1];
    }
}

// x, y [count, dim], `heads` of them a row; cos, sin [rows, half].
STRATA_KERNEL(rope_halves, (const float* x, const float* cos, const float* sin, float* y, int64_t count,
                            int64_t heads, int64_t dim, int64_t half)) {
    in_turn();
    turn(x, cos, sin, y, count, heads, dim, half, 1, half);
}

STRATA_KERNEL(rope_pairs, (const float* x, const float* cos, const float* sin, float* y, int64_t count, int64_t heads,
                           int64_t dim, int64_t half)) {
    in_turn();
    turn(x, cos, sin, y, count, heads, dim, half, 2, 1);
}

STRATA_KERNEL(rope_angles, (const int32_t* positions, const double* frequencies, float* cos, float* sin,
                            int64_t count, int64_t half)) {
    in_turn();
    const int64_t i = element();
    if (i >= count) return;
    double s, c;
    sine_cosine(static_cast<double>(positions[i / half]) * frequencies[i % half], s, c);
    cos[i] = static_cast<float>(c);
    sin[i] = static_cast<float>(s);
}

}  // namespace strata::STRATA_ISA
