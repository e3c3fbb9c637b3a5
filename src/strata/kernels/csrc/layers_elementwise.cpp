#include "layers_elementwise.h"

#include "layers_simd.h"
// After layers_simd.h, whose STRATA_INLINE it uses.
#include "activation.h"

namespace strata::STRATA_ISA {
namespace {

// Calls fn(first, end) for pieces of [0, count); `work` is the cost of a value in multiply-adds.
template <class F>
STRATA_INLINE void over(Pool& pool, int64_t count, int64_t work, const F& fn) {
    const int chunks = chunks_for((count + 255) / 256, count * work, pool.threads());
    auto run = [&](int chunk, int) {
        const int64_t end = 256 * chunk_begin((count + 255) / 256, chunks, chunk + 1);
        fn(256 * chunk_begin((count + 255) / 256, chunks, chunk), end < count ? end : count);
    };
    pool.parallel_for(chunks, run);
}

void add(Pool& pool, const float* x, const float* y, float* out, int64_t count) {
    over(pool, count, 1, [=](int64_t first, int64_t end) {
        for (int64_t i = first; i < end; ++i) out[i] = x[i] + y[i];
    });
}

void divide(Pool& pool, const float* x, float by, float* out, int64_t count) {
    over(pool, count, 1, [=](int64_t first, int64_t end) {
        for (int64_t i = first; i < end; ++i) out[i] = x[i] / by;
    });
}

void multiply(Pool& pool, const float* x, float by, float* out, int64_t count) {
    over(pool, count, 1, [=](int64_t first, int64_t end) {
        for (int64_t i = first; i < end; ++i) out[i] = x[i] * by;
    });
}

template <float (*function)(float)>
void gate_by(Pool& pool, const float* g, const float* x, float* out, int64_t count) {
    over(pool, count, 8, [=](int64_t first, int64_t end) {
        for (int64_t i = first; i < end; ++i) out[i] = function(g[i]) * x[i];
    });
}

void gate(Pool& pool, int kind, const float* g, const float* x, float* out, int64_t count) {
    switch (kind) {
        case 0: return gate_by<silu>(pool, g, x, out, count);
        case 1: return gate_by<sigmoid>(pool, g, x, out, count);
        case 2: return gate_by<softplus>(pool, g, x, out, count);
        default: return gate_by<shared_exp>(pool, g, x, out, count);
    }
}

void signed_root(Pool& pool, const float* x, float least, float* out, int64_t count) {
    over(pool, count, 4, [=](int64_t first, int64_t end) {
        for (int64_t i = first; i < end; ++i) {
            const float size = fabsf(x[i]);
            const float root = sqrtf(size < least ? least : size);
            const float sign = x[i] > 0.0f ? 1.0f : x[i] < 0.0f ? -1.0f : x[i] * 0.0f;
            out[i] = sign * root;
        }
    });
}

void delta_rates(Pool& pool, const float* b, const float* a, const float* rate, const float* bias, float* beta,
                 float* decay, int64_t rows, int64_t heads) {
    const int chunks = chunks_for(rows, rows * heads * 24, pool.threads());
    auto run = [=](int chunk, int) {
        for (int64_t t = chunk_begin(rows, chunks, chunk); t < chunk_begin(rows, chunks, chunk + 1); ++t)
            for (int64_t h = 0, i = t * heads; h < heads; ++h, ++i) {
                beta[i] = sigmoid(b[i]);
                decay[i] = shared_exp(rate[h] * softplus(a[i] + bias[h]));
            }
    };
    pool.parallel_for(chunks, run);
}

void spread(Pool& pool, const float* weights, const float* x, float* out, int64_t rows, int64_t streams,
            int64_t hidden) {
    const int64_t units = rows * streams;
    const int chunks = chunks_for(units, units * hidden, pool.threads());
    auto run = [=](int chunk, int) {
        for (int64_t u = chunk_begin(units, chunks, chunk); u < chunk_begin(units, chunks, chunk + 1); ++u) {
            const float* from = x + u / streams * hidden;
            for (int64_t i = 0; i < hidden; ++i) out[u * hidden + i] = weights[u] * from[i];
        }
    };
    pool.parallel_for(chunks, run);
}

}  // namespace

extern const ElementwiseKernels elementwise_kernels = {add,         divide,      multiply, gate,
                                                       signed_root, delta_rates, spread};

}  // namespace strata::STRATA_ISA
