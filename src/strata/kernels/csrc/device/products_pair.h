// Codes and plain floats that read the same rows of x, in one launch: its first blocks do the floats as float_lanes.h
// does, the others the codes as products.h does one or two rows, and none waits for another. One unit for each
// STRATA_FORMAT, of the codes, and STRATA_FLOATS. How many blocks, groups of lanes, slots and shared bytes:
// kernels/linear/pair.py.
#pragma once

#include "products_lanes.h"
#include "products_share.h"
#include "products_stream.h"

namespace strata::STRATA_ISA {

// A group's share of a product that `blocks` of a launch's blocks do, from block `from` on, `groups` groups of each.
struct PairShare {
    int from, blocks, groups;
    int begin = 0, end = 0, stride = 0;

    STRATA_METHOD void divide(int64_t units) {
        const uint32_t all = static_cast<uint32_t>(units), block = block_x() - from;
        stride = groups;
        end = static_cast<int>(all * (block + 1) / blocks);
        begin = warp() < groups ? static_cast<int>(all * block / blocks) + warp() : end;
    }
};

template <class F, int T>
using PairWork = LinearWork<F, T, PairShare>;

#define STRATA_PAIR(T)                                                                                                 \
    STRATA_KERNEL_BESIDE(product_threads, 1, pair_##T,                                                                 \
                         (const Matrix* codes, int64_t codes_count, int64_t codes_units, const uint8_t* quantised,     \
                          float* codes_y, int64_t groups, int64_t slots, const Matrix* floats, int64_t floats_count,   \
                          int64_t floats_units, const uint8_t* x, float* floats_y, int64_t float_blocks, int64_t rows, \
                          int64_t cols)) {                                                                             \
        DYNAMIC_SHARED(unsigned char, shared);                                                                         \
        using C = STRATA_FORMAT;                                                                                       \
        using F = STRATA_FLOATS;                                                                                       \
        const int before = static_cast<int>(float_blocks), width = static_cast<int>(cols);                             \
        if (block_x() < before) {                                                                                      \
            const PairShare share = {0, before, block_size() / 32};                                                    \
            const PairWork<F, T> work = {share, floats, x, floats_y, floats_count, rows, floats_units, 0, width, 1};   \
            float_lanes<F, T>(work, shared);                                                                           \
        } else {                                                                                                       \
            const PairShare share = {before, grid_x() - before, static_cast<int>(groups)};                             \
            PairWork<C, T> work = {share, codes, quantised, codes_y, codes_count, rows, codes_units, 0, width,         \
                                   Part<C>::subs};                                                                     \
            run_share<C, T>(work, shared, static_cast<int>(slots));                                                    \
        }                                                                                                              \
    }

STRATA_PAIR(1)
STRATA_PAIR(2)

#undef STRATA_PAIR

}  // namespace strata::STRATA_ISA
