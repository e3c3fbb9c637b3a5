// The kernel of products_few.h for five to eight input rows, with AVX-512: they share the decoding of their weight
// rows.
//
// Registers hold the sums of one half of the lanes, so one half of a row's groups comes after the other, of some rows
// in turns. On Zen 4 (two threads, 2,048 columns) five to eight input rows take 0.77, 0.79, 0.84 and 0.93 of the time
// of four and then the rest with Q6_K, 0.71, 0.76, 0.83 and 0.86 with Q8_0; of 256 columns with Q4_K 0.61 to 0.70.
#pragma once

#include "products_few_kernel.h"

#if STRATA_AVX512

namespace strata::STRATA_ISA {

template <class F, int N>
struct WideKernel {
    using Few = FewKernel<F, N>;
    // Groups of a half at a time, and the most weight rows in turns: with what they need, 20 KiB, they stay in the
    // first-level cache. All groups of 4,096 columns at a time took twice as long.
    static constexpr int64_t part = 64 / F::sub, most_turns = 8;

    // One group of an input row. Those of all input rows lie side by side: as they come, eight rows of a power of two
    // of columns meet in few sets of the cache, which doubled the time of 4,096.
    struct Cell {
        int8_t q[Few::values];
        Beside<F> beside;
    };
    struct Cells {
        const Cell* cell;
        const int8_t* codes(int n) const { return cell[n].q; }
        const Beside<F>& with(int n) const { return cell[n].beside; }
    };

    // The first 1 / R of each group, R times.
    template <int R>
    static Cell* fill(const FewRows& job) {
        Cell* const cells = static_cast<Cell*>(job.scratch);
        Cell* to = cells;
        for (int64_t g = 0; g < job.groups; ++g)
            for (int64_t n = 0; n < N; ++n, ++to) {
                const int8_t* q = job.q + ((job.index ? job.index[n] : n) * job.groups + g) * Few::values;
                for (int64_t at = 0; at < Few::values; at += 64)
                    store(reinterpret_cast<int32_t*>(to->q + at), load_ints_again<R>(q + at));
                to->beside.template take<R>(job, n, g);
            }
        return cells;
    }

    // Rows of whole groups.
    static void rows(const FewRows& job) {
        const Cell* const cells = fill<1>(job);
        // Activations that come in several parts are read once for more rows; else four turns are up to a tenth better.
        const int64_t turns = job.groups > 2 * part ? most_turns : 4, row_bytes = job.groups * Few::bytes;
        Ahead ahead(job, row_bytes, job.first, job.last, turns * row_bytes);
        for (int64_t row = job.first; row < job.last; row += turns) {
            const int64_t count = job.last - row < turns ? job.last - row : turns;
            const uint8_t* b = job.weight.data + row * row_bytes;
            Floats16 lanes[2][most_turns][N];
            for (int64_t half = 0; half < 2; ++half) {
                int64_t g = half;
                do {
                    const int64_t end = g + 2 * part < job.groups ? g + 2 * part : job.groups;
                    for (int64_t r = 0; r < count; ++r)
                        add(b + r * row_bytes, cells, g, end, g == half, ahead, lanes[half][r]);
                    g += 2 * part;
                } while (g < job.groups);
            }
            for (int64_t r = 0; r < count; ++r)
                for (int n = 0; n < N; ++n) put(job, n, row + r, lane_tree(lanes[0][r][n], lanes[1][r][n]));
        }
    }

    // R rows that make one group.
    template <int R>
    static void short_rows(const FewRows& job) {
        const Cells cells{fill<R>(job)};
        Ahead ahead(job, Few::bytes / R, job.first, job.last);
        const uint8_t* b = job.weight.data + job.first / R * Few::bytes;
        for (int64_t row = job.first; row < job.last; row += R, b += Few::bytes) {
            ahead.ask(Few::bytes);
            Floats16 lanes[N];
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) lanes[n] = no_floats();
            Few::template group<1>(b, cells, lanes);
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) {
                float y[R];
                part_trees(lanes[n], y);
                for (int r = 0; r < R; ++r) put(job, n, row + r, y[r]);
            }
        }
    }

private:
    static void put(const FewRows& job, int64_t n, int64_t row, float y) {
        job.out[n * job.stride + row - job.first] = job.weight.scale == 1.0f ? y : y * job.weight.scale;
    }

    // The groups g, g + 2, ... before `end` of the weight row at b into their half of the lanes.
    __attribute__((always_inline)) static inline void add(const uint8_t* b, const Cell* cells, int64_t g, int64_t end,
                                                          bool fresh, Ahead& ahead, Floats16* lanes) {
        Floats16 acc[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) acc[n] = fresh ? no_floats() : lanes[n];
        b += g * Few::bytes;
        for (; g < end; g += 2, b += 2 * Few::bytes) {
            ahead.ask(Few::bytes);
            Few::template group<1>(b, Cells{cells + g * N}, acc);
        }
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) lanes[n] = acc[n];
    }
};

// Whether this kernel had the job: it takes rows of whole groups, and such of which two or four make one.
template <class F, int N>
static bool multiply_wide(const FewRows& job) {
    constexpr int64_t values = FewKernel<F, N>::values;
    const int64_t cols = job.weight.cols, from = job.first % 4, count = job.last - job.first;
    if (cols % values == 0) WideKernel<F, N>::rows(job);
    else if (2 * cols == values && from % 2 == 0 && count % 2 == 0) WideKernel<F, N>::template short_rows<2>(job);
    else return false;
    return true;
}

}  // namespace strata::STRATA_ISA

#endif
