// Products of the routed experts for a few rows of x, bit for bit as kernels/experts/naive.py: one unit for each
// STRATA_FORMAT. The numbers in the kernels' names are T, the rows of x of a job at most. Launches:
// kernels/experts/launch.py.
#pragma once

#include "products_split.h"

namespace strata::STRATA_ISA {

template <class F, int L, int T, int P, class Work>
STRATA_INLINE void run_experts(Work work, int64_t met) {
    uint8_t* const table = reinterpret_cast<uint8_t*>(work.known + met);
    run_split<F, L, T, P>(work, reinterpret_cast<uint32_t*>(table), work.codes + met * T * quantised_bytes<F::sub>(work.cols));
}

template <class F, int T>
STRATA_INLINE void gate_up(const ExpertWork<F, T>& work, float* h, int64_t width, int64_t met) {
    if constexpr (!is_plain<F>) run_experts<F, 2, T, gate_up_parts>(GateUpWork<F, T>{work, h, width}, met);
}

template <class F, int T>
STRATA_INLINE void one_matrix(OneMatrixWork<F, T> work, int64_t met) {
    if constexpr (is_plain<F>) run_floats<F, T>(work, reinterpret_cast<unsigned char*>(work.known + met));
    else run_experts<F, 1, T, gate_up_parts>(work, met);
}

template <class F, int T>
STRATA_INLINE void down(const OneMatrixWork<F, T>& work, const float* h, int64_t met) {
    if constexpr (!is_plain<F>) run_experts<F, 1, T, least_parts<F>>(DownWork<F, T>{work, h, {}}, met);
}

// `met`: jobs of a block, at most.
#define STRATA_EXPERTS(T)                                                                                               \
    STRATA_KERNEL_BESIDE(expert_threads, 1, gate_up_##T,                                                                \
                        (const Jobs* jobs, int64_t pairs, const uint8_t* x, int64_t top_k, int64_t cols,     \
                         int64_t lines, int64_t met, float* h, int64_t width)) {                                        \
        DYNAMIC_SHARED(unsigned char, shared);                                                                          \
        using F = STRATA_FORMAT;                                                                                        \
        gate_up<F, T>(expert_work<F, T>(jobs, pairs, x, top_k, cols, lines, width, met, shared), h, width, met);        \
    }                                                                                                                   \
    /* gate or up where experts have several formats; every matrix of plain floats */                                   \
    STRATA_KERNEL_BESIDE(expert_threads, 1, one_matrix_##T,                                                             \
                        (const Jobs* jobs, int64_t pairs, const uint8_t* x, int64_t top_k, int64_t cols,     \
                         int64_t lines, int64_t met, float* y, int64_t rows, int64_t kind, int64_t format)) {           \
        DYNAMIC_SHARED(unsigned char, shared);                                                                          \
        using F = STRATA_FORMAT;                                                                                        \
        const auto work = expert_work<F, T>(jobs, pairs, x, top_k, cols, lines, rows, met, shared);                     \
        one_matrix<F, T>({work, y, rows, kind, format}, met);                                                           \
    }                                                                                                                   \
    STRATA_KERNEL_BESIDE(expert_threads, 1, down_##T,                                                                   \
                        (const Jobs* jobs, int64_t pairs, const float* h, int64_t cols, int64_t lines,       \
                         int64_t met, float* y, int64_t rows, int64_t format)) {                                        \
        DYNAMIC_SHARED(unsigned char, shared);                                                                          \
        using F = STRATA_FORMAT;                                                                                        \
        const auto work = expert_work<F, T>(jobs, pairs, nullptr, 0, cols, lines, rows, met, shared);                   \
        down<F, T>({work, y, rows, down_matrix, format}, h, met);                                                       \
    }

STRATA_EXPERTS(1)
STRATA_EXPERTS(2)

#undef STRATA_EXPERTS

}  // namespace strata::STRATA_ISA
