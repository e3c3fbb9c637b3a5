// Quantised products for a few rows of x, bit for bit as kernels/linear/naive.py (docs/numerics.md 1): one unit for
// each STRATA_FORMAT, a struct of blocks.h or products_plain.h. The numbers in the kernels' names are T, the rows of x
// that share one reading of the weights. A launch has as many groups of lanes as are resident, or fewer. Rows of a
// unit, groups and dynamic shared bytes: kernels/linear/launch.py.
#pragma once

#include "products_share.h"
#include "products_stream.h"
#include "products_tiles.h"
#include "products_work.h"
#include "runs.h"

namespace strata::STRATA_ISA {

template <class F, int T, class Work>
STRATA_INLINE void run(Work& work, unsigned char* shared, int slots) {
    if constexpr (is_plain<F>) {
        run_floats<F, T>(work, shared);
    } else {
        if constexpr (T <= most_staged_rows && has_parts<F>)
            if (slots) return run_share<F, T>(work, shared, slots);
        if constexpr (Part<F>::subs > 2)
            if (work.lines == Part<F>::subs) return run_blocks<F, 1, T>(work, shared);
        run_rows<F, 1, T>(work, shared);
    }
}

#define STRATA_LINEAR(T)                                                                                               \
    STRATA_KERNEL_BESIDE(product_threads, 1, linear_##T,                                                               \
                         (const Matrix* matrices, int64_t count, int64_t units, const uint8_t* x, float* y,             \
                          int64_t rows, int64_t cols, int64_t lines, int64_t slots)) {                                 \
        DYNAMIC_SHARED(unsigned char, shared);                                                                         \
        using F = STRATA_FORMAT;                                                                                       \
        LinearWork<F, T> work = {{}, matrices, x, y, count, rows, units, static_cast<int64_t>(block_y()) * T,          \
                                 static_cast<int>(cols), static_cast<int>(lines)};                                     \
        if constexpr (T <= 4 || (!has_fragments<F> && !has_runs<F>)) run<F, T>(work, shared, static_cast<int>(slots)); \
    }

// linear for several rows of x: 8 N at once.
#define STRATA_TILES(N)                                                                                                \
    STRATA_KERNEL_BESIDE(tile_threads, 2, tiles_##N,                                                                   \
                         (const Matrix* matrices, int64_t count, int64_t units, const uint8_t* x, float* y,                \
                          int64_t rows, int64_t cols, int64_t lines)) {                                                \
        DYNAMIC_SHARED(unsigned char, shared);                                                                         \
        using F = STRATA_FORMAT;                                                                                       \
        LinearWork<F, 8 * N> work = {{}, matrices, x, y, count, rows, units, static_cast<int64_t>(block_y()) * 8 * N,  \
                                     static_cast<int>(cols), static_cast<int>(lines)};                                 \
        if constexpr (has_fragments<F>) run_tiles<F, N>(work, shared);                                                 \
    }

STRATA_LINEAR(1)
STRATA_LINEAR(2)
STRATA_LINEAR(4)
STRATA_LINEAR(8)
STRATA_TILES(1)
STRATA_TILES(2)

#undef STRATA_LINEAR
#undef STRATA_TILES

}  // namespace strata::STRATA_ISA
