// Products of the routed experts for a few rows of x, bit for bit as kernels/experts/naive.py: one unit for each STRATA_FORMAT.
// The numbers in the kernels' names are T, the rows of x of a job at most. Launches: kernels/experts/launch.py.
#pragma once

#include "products_split.h"

namespace strata::STRATA_ISA {

constexpr int expert_threads = 512;  // at most
constexpr int gate_up_parts = 16;    // lanes of a row of gate or up

// Of shared memory: the jobs of a block come first, `met` at most, then the table of the format.
template <class F>
STRATA_INLINE uint32_t* table_after(const ExpertWork<F>& work, int64_t met) {
    return reinterpret_cast<uint32_t*>(work.known + met);
}
template <class F>
STRATA_INLINE uint8_t* rest_after(const ExpertWork<F>& work, int64_t met) {
    return reinterpret_cast<uint8_t*>(table_after<F>(work, met) + Unpack<F>::table_words);
}

template <class F, int T>
STRATA_INLINE void gate_up(const ExpertWork<F>& work, float* h, int64_t width, int64_t met) {
    if constexpr (!is_plain<F>) {
        uint8_t* const kept = rest_after<F>(work, met);
        GateUpWork<F, T> all = {work, h, width, kept};
        run_split<F, 2, T, gate_up_parts>(all, table_after<F>(work, met), kept + (T == 1 ? quantised_bytes<F::sub>(work.cols) : 0));
    }
}

template <class F, int T>
STRATA_INLINE void one_matrix(OneMatrixWork<F> work, int64_t met) {
    if constexpr (is_plain<F>) run_floats<F, T>(work, reinterpret_cast<unsigned char*>(work.known + met));
    else run_split<F, 1, T, gate_up_parts>(work, table_after<F>(work, met), rest_after<F>(work, met));
}

template <class F, int T>
STRATA_INLINE void down(const OneMatrixWork<F>& work, const float* h, int64_t met) {
    if constexpr (!is_plain<F>) {
        uint8_t* const codes = rest_after<F>(work, met);
        DownWork<F, T> all = {work, h, codes};
        run_split<F, 1, T, least_parts<F>>(all, table_after<F>(work, met), codes + met * T * quantised_bytes<F::sub>(work.cols));
    }
}

template <class F>
STRATA_INLINE ExpertWork<F> expert_work(const ExpertEntry* table, const Jobs* jobs, const uint8_t* x, int64_t top_k, int64_t cols,
                                        int64_t lines, int64_t rows, unsigned char* shared) {
    const int per_job = static_cast<int>((rows + lines - 1) / lines);
    return {table, jobs, x, top_k, per_job, static_cast<int>(cols), static_cast<int>(lines), reinterpret_cast<KnownJob*>(shared), 0, 0, 0, 0, 0};
}

// `met`: jobs of a block, at most.
#define STRATA_EXPERTS(T)                                                                                               \
    STRATA_KERNEL_BESIDE(expert_threads, 1, gate_up_##T,                                                                    \
                        (const ExpertEntry* table, const Jobs* jobs, const uint8_t* x, int64_t top_k, int64_t cols,     \
                         int64_t lines, int64_t met, float* h, int64_t width)) {                                        \
        DYNAMIC_SHARED(unsigned char, shared);                                                                          \
        using F = STRATA_FORMAT;                                                                                        \
        gate_up<F, T>(expert_work<F>(table, jobs, x, top_k, cols, lines, width, shared), h, width, met);                \
    }                                                                                                                   \
    /* gate or up where experts have several formats; every matrix of plain floats */                                   \
    STRATA_KERNEL_BESIDE(expert_threads, 1, one_matrix_##T,                                                                 \
                        (const ExpertEntry* table, const Jobs* jobs, const uint8_t* x, int64_t top_k, int64_t cols,     \
                         int64_t lines, int64_t met, float* y, int64_t rows, int64_t kind, int64_t format)) {           \
        DYNAMIC_SHARED(unsigned char, shared);                                                                          \
        using F = STRATA_FORMAT;                                                                                        \
        one_matrix<F, T>({expert_work<F>(table, jobs, x, top_k, cols, lines, rows, shared), y, rows, kind, format}, met); \
    }                                                                                                                   \
    STRATA_KERNEL_BESIDE(expert_threads, 1, down_##T,                                                                       \
                        (const ExpertEntry* table, const Jobs* jobs, const float* h, int64_t cols, int64_t lines,       \
                         int64_t met, float* y, int64_t rows, int64_t format)) {                                        \
        DYNAMIC_SHARED(unsigned char, shared);                                                                          \
        using F = STRATA_FORMAT;                                                                                        \
        down<F, T>({expert_work<F>(table, jobs, nullptr, 0, cols, lines, rows, shared), y, rows, down_matrix, format}, h, met); \
    }

STRATA_EXPERTS(1)
STRATA_EXPERTS(2)

#undef STRATA_EXPERTS

}  // namespace strata::STRATA_ISA
