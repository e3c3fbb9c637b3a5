#include "layers_small.h"

#include "layers_simd.h"
// After layers_simd.h, whose STRATA_INLINE it uses.
#include "activation.h"

namespace strata::STRATA_ISA {
namespace {

// The k largest of p, the largest first, ties by the lower index; a NaN ranks below every number.
void top_of(const float* p, int64_t n, int64_t k, int32_t* ids, float* best) {
    int64_t used = 0;
    for (int64_t i = 0; i < n; ++i) {
        const float value = p[i] != p[i] ? -1.0f : p[i];
        if (used == k && !(value > best[k - 1])) continue;
        int64_t place = used < k ? used++ : k - 1;
        for (; place > 0 && value > best[place - 1]; --place) {
            best[place] = best[place - 1];
            ids[place] = ids[place - 1];
        }
        best[place] = value;
        ids[place] = static_cast<int32_t>(i);
    }
}

void route_row(const float* logits, int32_t* ids, float* weights, int64_t experts, int64_t top_k, bool renormalise,
               float* p) {
    const float top = largest(logits, experts);
    for (int64_t i = 0; i < experts; ++i) p[i] = shared_exp(logits[i] - top);
    const float total = lane_sum(p, experts);
    for (int64_t i = 0; i < experts; ++i) p[i] = p[i] / total;
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

void stream_mix(Pool& pool, const float* gate, const float* x, float* y, int64_t rows, int64_t streams, int64_t hidden) {
    const float count = static_cast<float>(streams);
    over_pieces(pool, rows, hidden, rows * streams * hidden * 4, [=](int64_t t, int64_t first, int64_t end) {
        float* __restrict out = y + t * hidden;
        for (int64_t s = 0; s < streams; ++s) {
            const float* g = gate + (t * streams + s) * hidden;
            const float* in = x + (t * streams + s) * hidden;
            if (s == 0)
                for (int64_t i = first; i < end; ++i) out[i] = sigmoid(g[i]) * in[i];
            else
                for (int64_t i = first; i < end; ++i) out[i] = out[i] + sigmoid(g[i]) * in[i];
        }
        for (int64_t i = first; i < end; ++i) out[i] = out[i] / count;
    });
}

void stream_add(Pool& pool, const float* residual, const float* y, const float* weights, float* out, int64_t rows,
                int64_t streams, int64_t hidden) {
    over_pieces(pool, rows, hidden, rows * streams * hidden, [=](int64_t t, int64_t first, int64_t end) {
        for (int64_t s = 0; s < streams; ++s) {
            const int64_t at = (t * streams + s) * hidden;
            const float weight = weights[t * streams + s];
            float* __restrict to = out + at;
            for (int64_t i = first; i < end; ++i)
                to[i] = __builtin_fmaf(weight, y[t * hidden + i], residual[at + i]);
        }
    });
}

void pool_blocks(Pool& pool, const Plane& raw, const int32_t* slots, const int32_t* blocks, int64_t n, int64_t ratio,
                 float* out) {
    const float count = static_cast<float>(ratio);
    over_pieces(pool, n, raw.width, n * ratio * raw.width, [=](int64_t t, int64_t first, int64_t end) {
        const int32_t* table = raw.table + slots[t] * raw.pages_per_slot;
        float* __restrict to = out + t * raw.width;
        if (blocks[t] == kNoEntry) {
            for (int64_t i = first; i < end; ++i) to[i] = 0.0f;
            return;
        }
        for (int64_t r = 0; r < ratio; ++r) {
            const int64_t entry = blocks[t] * ratio + r;
            const float* from = raw.floats() + (table[entry / raw.page] * raw.page + entry % raw.page) * raw.width;
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
