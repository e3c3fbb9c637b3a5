// Quantised products for several rows of x on matrix units, bit for bit as kernels/linear/naive.py: a unit for each
// STRATA_FORMAT that has runs (runs.h). The number in a kernel's name is the rows of x that share one reading of the
// weights, in eights. Blocks, rings and dynamic shared bytes: kernels/linear/rounds.py.
#pragma once

#include "products_runs.h"

namespace strata::STRATA_ISA {

#define STRATA_ROUNDS(N)                                                                                               \
    STRATA_KERNEL_BESIDE(round_threads, 1, rounds_##N,                                                                 \
                         (const Matrix* matrices, int64_t count, int64_t units, const uint8_t* x, float* y,                \
                          int64_t rows, int64_t cols, int64_t slots, int64_t each)) {                                      \
        DYNAMIC_SHARED(unsigned char, shared);                                                                         \
        using F = STRATA_FORMAT;                                                                                       \
        LinearWork<F, 8 * N> work = {{}, matrices, x, y, count, rows, units, static_cast<int64_t>(block_y()) * 8 * N,  \
                                     static_cast<int>(cols), run_lines};                                               \
        run_rounds<F, N>(work, shared, static_cast<int>(slots), static_cast<int>(each));                               \
    }

STRATA_ROUNDS(1)
STRATA_ROUNDS(2)

#undef STRATA_ROUNDS

}  // namespace strata::STRATA_ISA
