#include "layers_small.h"

#include "layers_activation.h"

namespace strata::STRATA_ISA {
namespace {

// Bit l is set where p[l] > limit, for W values.
STRATA_INLINE uint32_t above(const float* p, float limit) {
#if defined(STRATA_AVX512)
    return _mm512_cmp_ps_mask(vload(p), vset(limit), _CMP_GT_OQ);
#elif defined(STRATA_AVX2)
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(vload(p), vset(limit), _CMP_GT_OQ)));
#else
    uint32_t bits = 0;
    for (int l = 0; l < W; ++l) bits |= static_cast<uint32_t>(p[l] > limit) << l;
    return bits;
#endif
}

// Puts a value behind those that are not smaller: best[0 .. place - 1] are in use.
STRATA_INLINE void insert(float value, int64_t id, int64_t place, int32_t* ids, float* best) {
    for (; place > 0 && value > best[place - 1]; --place) {
        best[place] = best[place - 1];
        ids[place] = ids[place - 1];
    }
    best[place] = value;
    ids[place] = static_cast<int32_t>(id);
}

// The k largest of p, the largest first, ties by the lower index; a NaN ranks below every number.
void top_of(const float* p, int64_t n, int64_t k, int32_t* ids, float* best) {
    int64_t i = 0;
    for (; i < k; ++i) insert(p[i] != p[i] ? -1.0f : p[i], i, i, ids, best);
    for (; i + W <= n; i += W)
        for (uint32_t left = above(p + i, best[k - 1]); left; left &= left - 1) {
            const int64_t at = i + __builtin_ctz(left);
            if (p[at] > best[k - 1]) insert(p[at], at, k - 1, ids, best);
        }
    for (; i < n; ++i)
        if (p[i] > best[k - 1]) insert(p[i], i, k - 1, ids, best);
}

void route_row(const float* logits, int32_t* ids, float* weights, int64_t experts, int64_t top_k, bool renormalise,
               float* p) {
    const float top = largest(logits, experts);
    int64_t i = 0;
    for (; i + W <= experts; i += W) vstore(p + i, vexp(vsub(vload(logits + i), vset(top))));
    for (; i < experts; ++i) p[i] = shared_exp(logits[i] - top);
    const float total = lane_sum(p, experts);
    for (i = 0; i + W <= experts; i += W) vstore(p + i, vdiv(vload(p + i), vset(total)));
    for (; i < experts; ++i) p[i] = p[i] / total;
    top_of(p, experts, top_k, ids, weights);
    for (int64_t k = 0; k < top_k; ++k) weights[k] = p[ids[k]];
    if (!renormalise) return;
    float sum = weights[0];
    for (int64_t k = 1; k < top_k; ++k) sum = sum + weights[k];
    for (int64_t k = 0; k < top_k; ++k) weights[k] = weights[k] / sum;
}

void route(Pool& pool, const float* logits, int32_t* ids, float* weights, int64_t rows, int64_t experts, int64_t top_k,
           bool renormalise, float* scratch) {
    const int chunks = chunks_for(rows, rows * experts * 8, pool.threads());
    auto run = [=](int chunk, int worker) {
        for (int64_t t = chunk_begin(rows, chunks, chunk); t < chunk_begin(rows, chunks, chunk + 1); ++t)
            route_row(logits + t * experts, ids + t * top_k, weights + t * top_k, experts, top_k, renormalise,
                      scratch + worker * experts);
    };
    pool.parallel_for(chunks, run);
}

// Cuts rows of `hidden` values into pieces and calls fn(row, first, end) for each.
template <class F>
STRATA_INLINE void over_pieces(Pool& pool, int64_t rows, int64_t hidden, int64_t work, const F& fn) {
    constexpr int64_t kPiece = 512;
    const int64_t pieces = (hidden + kPiece - 1) / kPiece, units = rows * pieces;
    const int chunks = chunks_for(units, work, pool.threads());
    auto run = [&](int chunk, int) {
        for (int64_t u = chunk_begin(units, chunks, chunk); u < chunk_begin(units, chunks, chunk + 1); ++u) {
            const int64_t first = u % pieces * kPiece, end = first + kPiece;
            fn(u / pieces, first, end < hidden ? end : hidden);
        }
    };
    pool.parallel_for(chunks, run);
}

void stream_mix(Pool& pool, const float* gate, const float* x, float* y, int64_t rows, int64_t streams,
                int64_t hidden) {
    const float count = static_cast<float>(streams);
    over_pieces(pool, rows, hidden, rows * streams * hidden * 4, [=](int64_t t, int64_t first, int64_t end) {
        const float* g = gate + t * streams * hidden;
        const float* in = x + t * streams * hidden;
        float* out = y + t * hidden;
        int64_t i = first;
        for (; i + W <= end; i += W) {
            V sum = vmul(vsigmoid(vload(g + i)), vload(in + i));
            for (int64_t s = 1; s < streams; ++s)
                sum = vadd(sum, vmul(vsigmoid(vload(g + s * hidden + i)), vload(in + s * hidden + i)));
            vstore(out + i, vdiv(sum, vset(count)));
        }
        for (; i < end; ++i) {
            float sum = sigmoid(g[i]) * in[i];
            for (int64_t s = 1; s < streams; ++s) sum = sum + sigmoid(g[s * hidden + i]) * in[s * hidden + i];
            out[i] = sum / count;
        }
    });
}

void stream_add(Pool& pool, const float* residual, const float* y, const float* gates, float divisor, float factor,
                float* out, int64_t rows, int64_t streams, int64_t hidden) {
    over_pieces(pool, rows, hidden, rows * streams * hidden, [=](int64_t t, int64_t first, int64_t end) {
        for (int64_t s = 0; s < streams; ++s) {
            const int64_t at = (t * streams + s) * hidden;
            const float weight = sigmoid(gates[t * streams + s] / divisor) * factor;
            float* __restrict to = out + at;
            for (int64_t i = first; i < end; ++i)
                to[i] = __builtin_fmaf(weight, y[t * hidden + i], residual[at + i]);
        }
    });
}

void pool_blocks(Pool& pool, const Plane& raw, const int32_t* slots, const int32_t* blocks, int64_t n, int64_t ratio,
                 float* out) {
    const float count = static_cast<float>(ratio);
    over_pieces(pool, n, raw.dim, n * ratio * raw.dim, [=](int64_t t, int64_t first, int64_t end) {
        const int32_t* table = raw.table + slots[t] * raw.pages_per_slot;
        float* __restrict to = out + t * raw.dim;
        if (blocks[t] == kNoEntry) {
            for (int64_t i = first; i < end; ++i) to[i] = 0.0f;
            return;
        }
        for (int64_t r = 0; r < ratio; ++r) {
            const int64_t entry = blocks[t] * ratio + r;
            const float* from = raw.floats() + (table[entry / raw.page] * raw.page + entry % raw.page) * raw.dim;
            if (r == 0)
                for (int64_t i = first; i < end; ++i) to[i] = from[i];
            else
                for (int64_t i = first; i < end; ++i) to[i] = to[i] + from[i];
        }
        for (int64_t i = first; i < end; ++i) to[i] = to[i] / count;
    });
}

}  // namespace

extern const SmallKernels small_kernels = {route, stream_mix, stream_add, pool_blocks};

}  // namespace strata::STRATA_ISA
