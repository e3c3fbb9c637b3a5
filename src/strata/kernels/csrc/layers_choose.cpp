#include "layers_choose.h"

#include "layers_simd.h"
// After layers_simd.h, whose STRATA_INLINE it uses.
#include "activation.h"

namespace strata::STRATA_ISA {
namespace {

float largest_of(const float* values, int64_t count) {
    float best = -__builtin_inff();
    bool unordered = false;
    for (int64_t i = 0; i < count; ++i) {
        best = values[i] > best ? values[i] : best;
        unordered |= values[i] != values[i];
    }
    return unordered ? __builtin_nanf("") : best;
}

int64_t weigh(const float* values, int64_t count, float largest, float temperature, int64_t* weights) {
    int64_t whole = 0;
    for (int64_t i = 0; i < count; ++i) {
        weights[i] = static_cast<int64_t>(shared_exp((values[i] - largest) / temperature) * 17592186044416.0f);
        whole += weights[i];
    }
    return whole;
}

}  // namespace

extern const ChooseKernels choose_kernels = {largest_of, weigh};

}  // namespace strata::STRATA_ISA
