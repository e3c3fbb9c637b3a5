// The kernels of products_few.h by the number of input rows; each products_few_*.cpp makes them for some formats.
#pragma once

#include "products_few_wide.h"

namespace strata::STRATA_ISA {

#if STRATA_VECTOR

// Four input rows at most at a time; the others meet the same weight rows in the cache.
template <class F>
static void multiply_in_fours(const FewRows& job) {
    static_assert(sizeof(Beside<F>) <= 16 * F::sub, "fits into the room of a group's activations");
    Beside<F>::fill(job, static_cast<Beside<F>*>(job.scratch));
    const int64_t together = job.n > 4 ? 8 : job.last - job.first;
    for (int64_t first = job.first; first < job.last; first += together) {
        const int64_t last = first + together < job.last ? first + together : job.last;
        int64_t from = 0;
        for (; from + 4 <= job.n; from += 4) FewKernel<F, 4>::rows(job, first, last, from);
        switch (job.n - from) {
            case 3: FewKernel<F, 3>::rows(job, first, last, from); break;
            case 2: FewKernel<F, 2>::rows(job, first, last, from); break;
            case 1: FewKernel<F, 1>::rows(job, first, last, from); break;
        }
    }
}

template <class F>
void multiply_few(const FewRows& job) {
#if STRATA_AVX512
    switch (job.n) {
        case 5:
            if (multiply_wide<F, 5>(job)) return;
            break;
        case 6:
            if (multiply_wide<F, 6>(job)) return;
            break;
        case 7:
            if (multiply_wide<F, 7>(job)) return;
            break;
        case 8:
            if (multiply_wide<F, 8>(job)) return;
            break;
    }
#endif
    multiply_in_fours<F>(job);
}

#else

template <class F>
void multiply_few(const FewRows&) {}

#endif

}  // namespace strata::STRATA_ISA
