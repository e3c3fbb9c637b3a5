// Products that do not keep the lane rule, to measure what the rule costs (benchmarks/probe_products.py). No model uses
// them. Activations are scaled per 256 values, a block's scales go into its integer sum, and sums are added in whatever
// order is cheapest.
#pragma once

#include "products.h"

namespace strata {

struct ProbeKernels {
    // y[r] = row r of a Q4_K or IQ3_S weight times x [cols], cols a multiple of 512; null where not built (AVX-512
    // only).
    void (*plain_q4_k)(Context, const WeightView&, const float* x, float* y);
    void (*plain_iq3_s)(Context, const WeightView&, const float* x, float* y);
    // Reads every byte of the weight and does nothing else: the memory's own rate. y[0] gets a checksum.
    void (*read)(Context, const WeightView&, const float* x, float* y);
};
STRATA_VARIANTS(ProbeKernels, probe_kernels)

}  // namespace strata
