#include "layers_activate.h"

#include "layers_activation.h"

namespace strata::STRATA_ISA {
namespace {

template <V (*vector)(V), float (*scalar)(float)>
void each(const float* x, float divisor, float factor, float* y, int64_t count) {
    const V by = vset(divisor), times = vset(factor);
    int64_t i = 0;
    for (; i + W <= count; i += W) vstore(y + i, vmul(vector(vdiv(vload(x + i), by)), times));
    for (; i < count; ++i) y[i] = scalar(x[i] / divisor) * factor;
}

void activate(Pool& pool, int kind, const float* x, float divisor, float factor, float* y, int64_t count) {
    constexpr int64_t per_unit = 1024;
    const int64_t units = (count + per_unit - 1) / per_unit;
    const int chunks = chunks_for(units, count * 4, pool.threads());
    pool.parallel_for(chunks, [=](int chunk, int) {
        const int64_t first = chunk_begin(units, chunks, chunk) * per_unit;
        const int64_t next = chunk_begin(units, chunks, chunk + 1) * per_unit,
                      n = (next < count ? next : count) - first;
        switch (kind) {
            case 0: return each<vsilu, silu>(x + first, divisor, factor, y + first, n);
            case 1: return each<vsigmoid, sigmoid>(x + first, divisor, factor, y + first, n);
            case 2: return each<vsoftplus, softplus>(x + first, divisor, factor, y + first, n);
            default: return each<vexp, shared_exp>(x + first, divisor, factor, y + first, n);
        }
    });
}

}  // namespace

extern const ActivateKernels activate_kernels = {activate};

}  // namespace strata::STRATA_ISA
