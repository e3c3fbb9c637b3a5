// Norms, the plain dot product and rope; norm/naive.py and rope/naive.py state every rounding.
#pragma once

#include <stdint.h>

#include "dispatch.h"
#include "pool.h"

namespace strata {

struct NormKernels {
    // Every group of `group` values of x; weight holds `weight_len` values, repeated (0: none).
    void (*rms_norm)(Pool&, const float* x, const float* weight, float* y, int64_t groups, int64_t group,
                     int64_t weight_len, float eps);
    void (*l2_norm)(Pool&, const float* x, float* y, int64_t rows, int64_t dim, float eps, float scale);
    void (*row_dot)(Pool&, const float* a, const float* b, float* y, int64_t rows, int64_t dim);
    // x, y [rows, heads, dim]; cos, sin [rows, half]; pairs: dims 2i and 2i + 1, else i and i + half.
    void (*rope)(Pool&, const float* x, const float* cos, const float* sin, float* y, int64_t rows, int64_t heads,
                 int64_t dim, int64_t half, bool pairs);
};
STRATA_VARIANTS(NormKernels, norm_kernels)

}  // namespace strata
