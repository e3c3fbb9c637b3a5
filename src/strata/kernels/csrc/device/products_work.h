// What the launches of products.h do: rows of dense matrices.
#pragma once

#include "products_blocks.h"
#include "products_floats.h"

namespace strata::STRATA_ISA {

STRATA_INLINE const uint8_t* pointer(int64_t address) { return reinterpret_cast<const uint8_t*>(address); }
STRATA_INLINE float scale_of(int64_t bits) { return float_of_bits(static_cast<uint32_t>(bits)); }

// Bytes from one row of x to the next, quantised or as float32.
template <class F>
STRATA_INLINE int64_t input_bytes(int64_t cols) {
    if constexpr (is_plain<F>) return cols * 4;
    else return quantised_bytes<F::sub>(cols);
}

template <class F>
STRATA_INLINE int64_t row_bytes(int64_t cols) {
    if constexpr (is_plain<F>) return cols * F::bytes;
    else return cols / F::block * F::bytes;
}

// Up to `each` rows from row `first` on of a matrix of `rows`.
template <class F>
STRATA_INLINE Stream stream_of(int64_t data, int64_t plane, int64_t rows, int64_t cols, int64_t first, int each) {
    const int64_t left = rows - first;
    return {pointer(data) + first * row_bytes<F>(cols), pointer(plane), first, static_cast<int>(left < each ? left : each)};
}

// A group's share of a launch: blocks take equal runs of units, whose groups take them in turn.
struct Share {
    int begin, end, stride;

    STRATA_METHOD void divide(int64_t units) {
        const uint32_t all = static_cast<uint32_t>(units), blocks = grid_x(), block = block_x();  // 64 bits would take long
        stride = block_size() / 32;
        begin = static_cast<int>(all * block / blocks) + warp();
        end = static_cast<int>(all * (block + 1) / blocks);
    }
};

// Matrices that read the same rows of x: int64 [count][8], written by kernels/linear/matrices.py. A unit is `lines`
// rows of one.
struct Matrix {
    int64_t data, scales, rows, first_unit, rows_before, scale_bits, unused[2];
};

constexpr int most_matrices = 8;  // of a launch

// Where the results of a unit's rows go.
struct RoundResult {
    float* to;
    int64_t stride;  // from a row of x to the next
    float scale;
    int rows;
};

// y holds the results of the matrices one after the other, each [rows, matrix.rows]; S divides their units among
// groups.
template <class F, int T, class S = Share>
struct LinearWork : S {
    const Matrix* matrices;
    const uint8_t* x;
    float* y;
    int64_t matrix_count, rows, units, first;  // first: of the rows of x
    int cols, lines;
    static constexpr bool shares_inputs = true;

    // What is known of the matrices comes to shared memory first: every look at it would be a way to the second-level
    // cache.
    STRATA_METHOD void start() {
        start_next();
        this->divide(units);
        SHARED(Matrix, here, most_matrices);
        constexpr int words = sizeof(Matrix) / 8;
        for (int i = thread_x(); i < matrix_count * words; i += block_size())
            reinterpret_cast<int64_t*>(here)[i] = reinterpret_cast<const int64_t*>(matrices)[i];
        barrier();
        matrices = here;
    }
    STRATA_METHOD void wait() const { after_previous(); }

    STRATA_METHOD const Matrix& matrix_of(int64_t unit) const {
        int64_t i = 0;
        while (i + 1 < matrix_count && unit >= matrices[i + 1].first_unit) ++i;
        return matrices[i];
    }

    STRATA_METHOD void streams(int unit, Stream* stream) const {
        const Matrix& m = matrix_of(unit);
        *stream = stream_of<F>(m.data, m.scales, m.rows, cols, (unit - m.first_unit) * lines, lines);
    }

    STRATA_METHOD bool one_input() const { return true; }
    STRATA_METHOD int count(int) const { return static_cast<int>(rows - first < T ? rows - first : T); }
    STRATA_METHOD const uint8_t* input(int, int t) const { return x + (first + t) * input_bytes<F>(cols); }

    // Where the results of a unit go, for those who finish several.
    STRATA_METHOD RoundResult result(int unit) const {
        const Matrix& m = matrix_of(unit);
        const int64_t row = (unit - m.first_unit) * lines, left = m.rows - row;
        return {y + (m.rows_before * rows + first * m.rows + row), m.rows, scale_of(m.scale_bits), static_cast<int>(left < lines ? left : lines)};
    }

    STRATA_METHOD void finish(int unit, int r, int t, float sum, float) const {
        const Matrix& m = matrix_of(unit);
        const int64_t row = (unit - m.first_unit) * lines + r;
        y[m.rows_before * rows + (first + t) * m.rows + row] = sum * scale_of(m.scale_bits);
    }
};

}  // namespace strata::STRATA_ISA
