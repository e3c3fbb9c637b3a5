#include "layers_norm.h"

#include "layers_simd.h"

namespace strata::STRATA_ISA {

STRATA_INLINE float reciprocal_root(float total, float eps) { return 1.0f / __builtin_sqrtf(total + eps); }

// y = (x r) w, or x r without a weight.
STRATA_INLINE void scaled(const float* x, const float* weight, float* y, int64_t n, float r) {
    const V factor = vset(r);
    int64_t i = 0;
    if (weight) {
        for (; i + W <= n; i += W) vstore(y + i, vmul(vmul(vload(x + i), factor), vload(weight + i)));
        for (; i < n; ++i) y[i] = (x[i] * r) * weight[i];
    } else {
        for (; i + W <= n; i += W) vstore(y + i, vmul(vload(x + i), factor));
        for (; i < n; ++i) y[i] = x[i] * r;
    }
}

static void rms_norm(Pool& pool, const float* x, const float* weight, float* y, int64_t groups, int64_t group,
                     int64_t weight_len, float eps) {
    const int chunks = chunks_for(groups, groups * group, pool.threads());
    auto run = [=](int chunk, int) {
        for (int64_t g = chunk_begin(groups, chunks, chunk); g < chunk_begin(groups, chunks, chunk + 1); ++g) {
            const float* in = x + g * group;
            const float mean = lane_dot(in, in, group) / static_cast<float>(group);
            const float* w = weight_len ? weight + g * group % weight_len : nullptr;
            scaled(in, w, y + g * group, group, reciprocal_root(mean, eps));
        }
    };
    pool.parallel_for(chunks, run);
}

static void l2_norm(Pool& pool, const float* x, float* y, int64_t rows, int64_t dim, float eps, float scale) {
    const int chunks = chunks_for(rows, rows * dim, pool.threads());
    auto run = [=](int chunk, int) {
        for (int64_t t = chunk_begin(rows, chunks, chunk); t < chunk_begin(rows, chunks, chunk + 1); ++t) {
            const float* in = x + t * dim;
            float* out = y + t * dim;
            const float r = reciprocal_root(lane_dot(in, in, dim), eps);
            for (int64_t i = 0; i < dim; ++i) out[i] = (in[i] * r) * scale;
        }
    };
    pool.parallel_for(chunks, run);
}

static void row_dot(Pool& pool, const float* a, const float* b, float* y, int64_t rows, int64_t dim) {
    const int chunks = chunks_for(rows, rows * dim, pool.threads());
    auto run = [=](int chunk, int) {
        for (int64_t t = chunk_begin(rows, chunks, chunk); t < chunk_begin(rows, chunks, chunk + 1); ++t)
            y[t] = lane_dot(a + t * dim, b + t * dim, dim);
    };
    pool.parallel_for(chunks, run);
}

STRATA_INLINE void rotate(const float* __restrict x, const float* __restrict cos, const float* __restrict sin,
                          float* __restrict y, int64_t half, int64_t step, int64_t apart) {
    for (int64_t i = 0; i < half; ++i) {
        const float a = x[i * step], b = x[i * step + apart];
        y[i * step] = a * cos[i] - b * sin[i];
        y[i * step + apart] = b * cos[i] + a * sin[i];
    }
}

static void rope(Pool& pool, const float* x, const float* cos, const float* sin, float* y, int64_t rows, int64_t heads,
                 int64_t dim, int64_t half, bool pairs) {
    const int64_t units = rows * heads;
    const int chunks = chunks_for(units, units * dim, pool.threads());
    auto run = [=](int chunk, int) {
        for (int64_t u = chunk_begin(units, chunks, chunk); u < chunk_begin(units, chunks, chunk + 1); ++u) {
            const float* in = x + u * dim;
            const float* c = cos + u / heads * half;
            const float* s = sin + u / heads * half;
            float* out = y + u * dim;
            if (pairs)
                rotate(in, c, s, out, half, 2, 1);
            else
                rotate(in, c, s, out, half, 1, half);
            memcpy(out + 2 * half, in + 2 * half, static_cast<size_t>(dim - 2 * half) * sizeof(float));
        }
    };
    pool.parallel_for(chunks, run);
}

extern const NormKernels norm_kernels = {rms_norm, l2_norm, row_dot, rope};

}  // namespace strata::STRATA_ISA
