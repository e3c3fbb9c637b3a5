// What the launches of products.h do: rows of dense matrices, one matrix of the routed experts, their gate and up.
#pragma once

#include "expert_table.h"
#include "products_run.h"

namespace strata::STRATA_ISA {

STRATA_INLINE const uint8_t* pointer(int64_t address) { return reinterpret_cast<const uint8_t*>(address); }
STRATA_INLINE float scale_of(int64_t bits) { return float_of_bits(static_cast<uint32_t>(bits)); }

// Rows first .. first + R - 1 of a matrix; beyond its end the last one again, whose result nobody takes.
template <class F, int R>
STRATA_INLINE void lines_of(int64_t data, int64_t plane, int64_t rows, int64_t cols, int64_t first, Line (&lines)[R]) {
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
        const int64_t row = first + r < rows ? first + r : rows - 1;
        lines[r] = {pointer(data) + row * Step<F>::row_bytes(cols), Step<F>::scales_of(pointer(plane), row, cols)};
    }
}

// Matrices that read the same rows of x: int64 [count][8], written by kernels/linear/gpu.py. A unit is R rows of one.
struct Matrix {
    int64_t data, scales, rows, first_unit, rows_before, scale_bits, unused[2];
};

// y holds the results of the matrices one after the other, each [rows, matrix.rows].
template <class F, int R, int T>
struct LinearWork {
    const Matrix* matrices;
    const uint8_t* x;
    float* y;
    int64_t count, rows, cols, units, first;  // first: of the rows of x

    STRATA_METHOD bool has(int64_t) const { return true; }

    STRATA_METHOD const Matrix& matrix_of(int64_t unit) const {
        int64_t i = 0;
        while (i + 1 < count && unit >= matrices[i + 1].first_unit) ++i;
        return matrices[i];
    }

    STRATA_METHOD void lines(int64_t unit, Line (&lines)[R]) const {
        const Matrix& m = matrix_of(unit);
        lines_of<F, R>(m.data, m.scales, m.rows, cols, (unit - m.first_unit) * R, lines);
    }

    STRATA_METHOD void inputs(int64_t, Inputs<T>& in) const {
        const int64_t each = input_bytes<F>(cols);
        in.base = x + first * each;
        in.count = static_cast<int>(rows - first < T ? rows - first : T);
        STRATA_UNROLL
        for (int t = 0; t < T; ++t) in.offset[t] = t * each;
    }

    STRATA_METHOD void finish(int64_t unit, int valid, int r, int t, bool taken, float sum) const {
        const Matrix& m = matrix_of(unit);
        const int64_t row = (unit - m.first_unit) * R + r;
        if (taken && t < valid && row < m.rows)
            y[m.rows_before * rows + (first + t) * m.rows + row] = sum * scale_of(m.scale_bits);
    }
};

// What launches over the experts of a step share. Units of a job: `per_job`.
template <int T>
struct ExpertWork {
    const ExpertEntry* table;
    const Jobs* jobs;
    const uint8_t* x;
    int64_t per_job, cols, units, input_stride, top_k;  // top_k 0: x has a row for each pair, otherwise one for top_k pairs

    // In 32 bits, where a division is short.
    STRATA_METHOD uint32_t number_of(int64_t unit) const { return static_cast<uint32_t>(unit) / static_cast<uint32_t>(per_job); }
    STRATA_METHOD uint32_t within(int64_t unit) const { return static_cast<uint32_t>(unit) % static_cast<uint32_t>(per_job); }
    STRATA_METHOD const Job& job_of(int64_t unit) const { return jobs->job[number_of(unit)]; }

    STRATA_METHOD void inputs(int64_t unit, Inputs<T>& in) const {
        const Job& job = job_of(unit);
        in.base = x;
        in.count = job.count;
        STRATA_UNROLL
        for (int t = 0; t < T; ++t) {
            const uint32_t pair = t < job.count ? job.pair[t] : 0, each = static_cast<uint32_t>(top_k);
            in.offset[t] = (each ? pair / each : pair) * input_stride;
        }
    }
};

// y [pairs, rows] of one matrix of every expert whose format is `format`. A unit is `each` rows.
template <class F, int each, int T>
struct OneMatrixWork : ExpertWork<T> {
    float* y;
    int64_t rows, kind, format;

    STRATA_METHOD bool has(int64_t unit) const {
        return format_of(this->table[this->job_of(unit).expert], static_cast<int>(kind)) == format;
    }

    STRATA_METHOD int64_t first_row(int64_t unit) const { return static_cast<int64_t>(this->within(unit)) * each; }
    STRATA_METHOD int64_t left(int64_t unit) const { return rows - first_row(unit); }

    template <int R>
    STRATA_METHOD void lines(int64_t unit, Line (&lines)[R]) const {
        const ExpertEntry& e = this->table[this->job_of(unit).expert];
        lines_of<F, R>(e.data[kind], e.scales[kind], rows, this->cols, first_row(unit), lines);
    }

    STRATA_METHOD void finish(int64_t unit, int valid, int r, int t, bool taken, float sum) const {
        const Job& job = this->job_of(unit);
        const int64_t row = first_row(unit) + r;
        if (taken && t < valid && row < rows)
            y[job.pair[t] * rows + row] = sum * scale_of(this->table[job.expert].scale_bits[kind]);
    }
};

// h [pairs, width] = silu(gate) * up, and where they are wanted its records; all experts have F for gate and up. A unit
// is one row of both. Who finishes the last row of a block of 32 quantises the block.
template <class F, int T>
struct GateUpWork : ExpertWork<T> {
    float* h;
    uint8_t *by32, *by16;
    int32_t* arrived;  // [jobs, width / 32], zeros

    STRATA_METHOD bool has(int64_t) const { return true; }

    STRATA_METHOD void lines(int64_t unit, Line (&lines)[2]) const {
        const ExpertEntry& e = this->table[this->job_of(unit).expert];
        const int64_t row = static_cast<int64_t>(this->within(unit));
        STRATA_UNROLL
        for (int r = 0; r < 2; ++r)
            lines[r] = {pointer(e.data[r]) + row * Step<F>::row_bytes(this->cols),
                        Step<F>::scales_of(pointer(e.scales[r]), row, this->cols)};
    }

    STRATA_METHOD void finish(int64_t unit, int valid, int r, int t, bool taken, float sum) const {
        const Job& job = this->job_of(unit);
        const int64_t width = this->per_job, row = unit % width;
        const float mine = sum * scale_of(this->table[job.expert].scale_bits[r]), up = shuffle_xor(mine, 16);
        if (taken && r == 0 && t < valid) h[job.pair[t] * width + row] = silu(mine) * up;
        if (!by32 && !by16) return;
        const int64_t block = row / 32, blocks = width / 32;
        fence_device();
        sync_warp();
        int32_t before = 0;
        if (lane() == 0) before = atomic_add(arrived + this->number_of(unit) * blocks + block, 1);
        if (shuffle(before, 0) != 31) return;
        fence_device();
        STRATA_ROLL
        for (int i = 0; i < valid; ++i) {
            const int64_t pair = job.pair[i];
            quantise_block(load_volatile(h + pair * width + block * 32 + lane()), by32, by16, width, pair, block);
        }
    }
};

}  // namespace strata::STRATA_ISA
