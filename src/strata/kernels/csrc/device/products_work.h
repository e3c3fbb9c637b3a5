// What the launches of products.h do: rows of dense matrices, one matrix of the routed experts, their gate and up.
#pragma once

#include "expert_table.h"
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
        const int64_t blocks = grid_x(), block = block_x();
        stride = block_size() / 32;
        begin = static_cast<int>(units * block / blocks) + warp();
        end = static_cast<int>(units * (block + 1) / blocks);
    }
};

// Matrices that read the same rows of x: int64 [count][8], written by kernels/linear/gpu.py. A unit is `lines` rows of one.
struct Matrix {
    int64_t data, scales, rows, first_unit, rows_before, scale_bits, unused[2];
};

// y holds the results of the matrices one after the other, each [rows, matrix.rows].
template <class F, int T>
struct LinearWork : Share {
    const Matrix* matrices;
    const uint8_t* x;
    float* y;
    int64_t matrix_count, rows, units, first;  // first: of the rows of x
    int cols, lines;

    STRATA_METHOD void start() {
        start_next();
        divide(units);
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

    STRATA_METHOD void finish(int unit, int r, int t, float sum, float) const {
        const Matrix& m = matrix_of(unit);
        const int64_t row = (unit - m.first_unit) * lines + r;
        y[m.rows_before * rows + (first + t) * m.rows + row] = sum * scale_of(m.scale_bits);
    }
};

// What launches over the experts of a step share. Units of a job: `per_job`.
template <class F>
struct ExpertWork : Share {
    const ExpertEntry* table;
    const Jobs* jobs;
    const uint8_t* x;
    int64_t top_k;  // 0: x has a row for each pair, otherwise one for top_k pairs
    int per_job, cols, lines;

    STRATA_METHOD void start() {
        start_next();
        after_previous();
        divide(static_cast<int64_t>(jobs->count) * per_job);
    }
    STRATA_METHOD void wait() const {}

    STRATA_METHOD int number_of(int unit) const { return static_cast<int>(static_cast<uint32_t>(unit) / static_cast<uint32_t>(per_job)); }
    STRATA_METHOD const Job& job_of(int unit) const { return jobs->job[number_of(unit)]; }
    STRATA_METHOD int64_t first_row(int unit) const { return static_cast<int64_t>(unit - number_of(unit) * per_job) * lines; }

    STRATA_METHOD bool one_input() const { return false; }
    STRATA_METHOD int count(int unit) const { return job_of(unit).count; }
    STRATA_METHOD const uint8_t* input(int unit, int t) const {
        const int pair = job_of(unit).pair[t];
        return x + (top_k ? pair / static_cast<int>(top_k) : pair) * input_bytes<F>(cols);
    }
};

// y [pairs, rows] of one matrix of every expert whose format is `format`.
template <class F>
struct OneMatrixWork : ExpertWork<F> {
    float* y;
    int64_t rows, kind, format;

    STRATA_METHOD void streams(int unit, Stream* stream) const {
        const ExpertEntry& e = this->table[this->job_of(unit).expert];
        const bool mine = format_of(e, static_cast<int>(kind)) == format;
        *stream = stream_of<F>(e.data[kind], e.scales[kind], rows, this->cols, this->first_row(unit), this->lines);
        if (!mine) stream->rows = 0;
    }

    STRATA_METHOD void finish(int unit, int r, int t, float sum, float) const {
        const Job& job = this->job_of(unit);
        y[job.pair[t] * rows + this->first_row(unit) + r] = sum * scale_of(this->table[job.expert].scale_bits[kind]);
    }
};

// h [pairs, width] = silu(gate) * up; all experts have F for gate and up. A unit is the same rows of both.
template <class F>
struct GateUpWork : ExpertWork<F> {
    float* h;
    int64_t width;

    STRATA_METHOD void streams(int unit, Stream* streams) const {
        const ExpertEntry& e = this->table[this->job_of(unit).expert];
        STRATA_UNROLL
        for (int l = 0; l < 2; ++l)
            streams[l] = stream_of<F>(e.data[l], e.scales[l], width, this->cols, this->first_row(unit), this->lines);
    }

    STRATA_METHOD void finish(int unit, int r, int t, float gate, float up) const {
        const Job& job = this->job_of(unit);
        const ExpertEntry& e = this->table[job.expert];
        h[job.pair[t] * width + this->first_row(unit) + r] =
            silu(gate * scale_of(e.scale_bits[0])) * (up * scale_of(e.scale_bits[1]));
    }
};

}  // namespace strata::STRATA_ISA
