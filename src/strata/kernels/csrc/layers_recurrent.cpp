#include "layers_recurrent.h"

#include "layers_simd.h"
// After layers_simd.h, whose STRATA_INLINE it uses.
#include "activation.h"

namespace strata::STRATA_ISA {
namespace {

// One block of channels of one segment; `width` <= kConvChannels.
void conv_block(const ConvCall& call, const int32_t* segment, int64_t channel, int64_t width, float* weights) {
    const int64_t span = (call.taps - 1) * call.dilation, first = segment[1], length = segment[2];
    float* past = call.history + segment[0] * span * call.channels + channel;
    const float* x = call.x + first * call.channels + channel;
    for (int64_t k = 0; k < call.taps; ++k)
        for (int64_t c = 0; c < width; ++c) weights[k * kConvChannels + c] = call.weight[(channel + c) * call.taps + k];
    for (int64_t t = 0; t < length; ++t) {
        float acc[kConvChannels] = {};
        for (int64_t k = 0; k < call.taps; ++k) {
            const int64_t at = t + k * call.dilation;  // row of history and segment together
            const float* source = at < span ? past + at * call.channels : x + (at - span) * call.channels;
            const float* w = weights + k * kConvChannels;
            for (int64_t c = 0; c < width; ++c) acc[c] = __builtin_fmaf(w[c], source[c], acc[c]);
        }
        float* out = call.out + (first + t) * call.channels + channel;
        for (int64_t c = 0; c < width; ++c) out[c] = silu(acc[c]);
    }
    for (int64_t i = 0; i < span; ++i) {  // row i is read before it is overwritten: sources lie ahead
        const int64_t at = length + i;
        memcpy(past + i * call.channels, at < span ? past + at * call.channels : x + (at - span) * call.channels,
               static_cast<size_t>(width) * sizeof(float));
    }
}

void conv(Pool& pool, const ConvCall& call, float* scratch) {
    const int64_t blocks = (call.channels + kConvChannels - 1) / kConvChannels, units = call.num_segments * blocks;
    const int chunks = chunks_for(units, call.rows * call.channels * (call.taps + 8), pool.threads());
    auto run = [&](int chunk, int worker) {
        for (int64_t u = chunk_begin(units, chunks, chunk); u < chunk_begin(units, chunks, chunk + 1); ++u) {
            const int64_t channel = u % blocks * kConvChannels, left = call.channels - channel;
            conv_block(call, call.segments + u / blocks * 3, channel, left < kConvChannels ? left : kConvChannels,
                       scratch + worker * call.taps * kConvChannels);
        }
    };
    pool.parallel_for(chunks, run);
}

// One row on N * W columns of a head's state, in two passes: the second finds the state in the cache.
template <int N>
STRATA_INLINE void step(float* state, int64_t stride, int64_t key_dim, const float* q, const float* k, const float* v,
                        float* out, float beta, float decay) {
    const V fade = vset(decay);
    V read[N], change[N], sum[N];
    for (int n = 0; n < N; ++n) read[n] = vzero();
    for (int64_t i = 0; i < key_dim; ++i) {
        const V key = vset(k[i]);
        for (int n = 0; n < N; ++n) read[n] = vfma(vmul(vload(state + i * stride + n * W), fade), key, read[n]);
    }
    for (int n = 0; n < N; ++n) {
        change[n] = vmul(vset(beta), vsub(vload(v + n * W), read[n]));
        sum[n] = vzero();
    }
    for (int64_t i = 0; i < key_dim; ++i) {
        const V key = vset(k[i]), query = vset(q[i]);
        for (int n = 0; n < N; ++n) {
            float* place = state + i * stride + n * W;
            const V s = vfma(key, change[n], vmul(vload(place), fade));
            vstore(place, s);
            sum[n] = vfma(s, query, sum[n]);
        }
    }
    for (int n = 0; n < N; ++n) vstore(out + n * W, sum[n]);
}

// Places of one head in the tensors of a call.
struct Head {
    float* state;
    const float* q;
    const float* k;
    const float* v;
    const float* beta;
    const float* decay;
    float* out;
    int64_t row_width;    // from one row's q, k, v to the next's
    int64_t gate_stride;  // from one row's beta, decay to the next's
    int64_t out_stride;
};

// kDeltaColumns columns of the state, held in `block` [key_dim][kDeltaColumns], over n rows. The pass that finishes
// a row (update, output) also begins the next one (decay, read): one load and one store per state value and row.
void run_columns(float* block, int64_t key_dim, const Head& head, const float* q, const float* k, int64_t row, int64_t n,
                 int64_t column, int64_t width) {
    constexpr int N = kDeltaColumns / W;
    V read[N], change[N], sum[N];
    for (int i = 0; i < N; ++i) read[i] = vzero();
    const V first = vset(head.decay[row * head.gate_stride]);
    for (int64_t i = 0; i < key_dim; ++i) {
        const V key = vset(k[i]);
        for (int c = 0; c < N; ++c) {
            float* place = block + i * kDeltaColumns + c * W;
            const V s = vmul(vload(place), first);
            vstore(place, s);
            read[c] = vfma(s, key, read[c]);
        }
    }
    for (int64_t t = 0; t < n; ++t, q += key_dim, k += key_dim) {
        float line[kDeltaColumns] = {};
        const size_t bytes = static_cast<size_t>(width) * sizeof(float);
        memcpy(line, head.v + (row + t) * head.row_width + column, bytes);
        const V beta = vset(head.beta[(row + t) * head.gate_stride]);
        for (int c = 0; c < N; ++c) {
            change[c] = vmul(beta, vsub(vload(line + c * W), read[c]));
            sum[c] = read[c] = vzero();
        }
        if (t + 1 < n) {
            const V fade = vset(head.decay[(row + t + 1) * head.gate_stride]);
            for (int64_t i = 0; i < key_dim; ++i) {
                const V key = vset(k[i]), query = vset(q[i]), next = vset(k[key_dim + i]);
                for (int c = 0; c < N; ++c) {
                    float* place = block + i * kDeltaColumns + c * W;
                    V s = vfma(key, change[c], vload(place));
                    sum[c] = vfma(s, query, sum[c]);
                    s = vmul(s, fade);
                    vstore(place, s);
                    read[c] = vfma(s, next, read[c]);
                }
            }
        } else {
            for (int64_t i = 0; i < key_dim; ++i) {
                const V key = vset(k[i]), query = vset(q[i]);
                for (int c = 0; c < N; ++c) {
                    float* place = block + i * kDeltaColumns + c * W;
                    const V s = vfma(key, change[c], vload(place));
                    vstore(place, s);
                    sum[c] = vfma(s, query, sum[c]);
                }
            }
        }
        for (int c = 0; c < N; ++c) vstore(line + c * W, sum[c]);
        memcpy(head.out + (row + t) * head.out_stride + column, line, bytes);
    }
}

STRATA_INLINE void normalise(const float* x, float* y, int64_t n, float eps, float scale) {
    const float r = 1.0f / __builtin_sqrtf(lane_dot(x, x, n) + eps);
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * r) * scale;
}

void copy_columns(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows; ++i)
        memcpy(to + i * to_stride, from + i * from_stride, static_cast<size_t>(width) * sizeof(float));
}

// All columns for the rows [row, row + n) of a head, through a copy that stays in the first cache.
void run_rows(const DeltaCall& call, const Head& head, const float* q, const float* k, int64_t row, int64_t n,
              int64_t column, float* block) {
    for (; column < call.value_dim; column += kDeltaColumns) {
        const int64_t left = call.value_dim - column, width = left < kDeltaColumns ? left : kDeltaColumns;
        memset(block, 0, static_cast<size_t>(call.key_dim * kDeltaColumns) * sizeof(float));
        copy_columns(block, kDeltaColumns, head.state + column, call.value_dim, call.key_dim, width);
        run_columns(block, call.key_dim, head, q, k, row, n, column, width);
        copy_columns(head.state + column, call.value_dim, block, kDeltaColumns, call.key_dim, width);
    }
}

template <int N>
STRATA_INLINE int64_t step_columns(const DeltaCall& call, const Head& head, const float* q, const float* k, int64_t row,
                                   int64_t column) {
    for (; column + N * W <= call.value_dim; column += N * W)
        step<N>(head.state + column, call.value_dim, call.key_dim, q, k, head.v + row * head.row_width + column,
                head.out + row * head.out_stride + column, head.beta[row * head.gate_stride],
                head.decay[row * head.gate_stride]);
    return column;
}

void run_head(const DeltaCall& call, const int32_t* segment, int64_t h, float* scratch) {
    const int64_t keys = call.key_heads * call.key_dim;
    const int64_t key_head = call.tiled ? h % call.key_heads : h / (call.value_heads / call.key_heads);
    const float* base = call.qkv;
    const Head head = {call.state + (segment[0] * call.value_heads + h) * call.key_dim * call.value_dim,
                       base + key_head * call.key_dim,
                       base + keys + key_head * call.key_dim,
                       base + 2 * keys + h * call.value_dim,
                       call.beta + h,
                       call.decay + h,
                       call.out + h * call.value_dim,
                       2 * keys + call.value_heads * call.value_dim,
                       call.value_heads,
                       call.value_heads * call.value_dim};
    float* q = scratch;
    float* k = q + kDeltaRows * call.key_dim;
    float* block = k + kDeltaRows * call.key_dim;
    const int64_t end = segment[1] + segment[2];
    for (int64_t row = segment[1]; row < end; row += kDeltaRows) {
        const int64_t n = end - row < kDeltaRows ? end - row : kDeltaRows;
        for (int64_t t = 0; t < n; ++t) {
            normalise(head.q + (row + t) * head.row_width, q + t * call.key_dim, call.key_dim, call.eps, call.scale);
            normalise(head.k + (row + t) * head.row_width, k + t * call.key_dim, call.key_dim, call.eps, 1.0f);
        }
        int64_t column = 0;
        if (n == 1) {
            column = step_columns<8>(call, head, q, k, row, column);
            column = step_columns<4>(call, head, q, k, row, column);
            column = step_columns<2>(call, head, q, k, row, column);
        }
        run_rows(call, head, q, k, row, n, column, block);
    }
}

void delta(Pool& pool, const DeltaCall& call, float* scratch) {
    const int64_t units = call.num_segments * call.value_heads;
    const int chunks = chunks_for(units, call.rows * call.value_heads * call.key_dim * call.value_dim, pool.threads());
    auto run = [&](int chunk, int worker) {
        for (int64_t u = chunk_begin(units, chunks, chunk); u < chunk_begin(units, chunks, chunk + 1); ++u)
            run_head(call, call.segments + u / call.value_heads * 3, u % call.value_heads,
                     scratch + worker * delta_floats(call.key_dim));
    };
    pool.parallel_for(chunks, run);
}

}  // namespace

extern const RecurrentKernels recurrent_kernels = {conv, delta};

}  // namespace strata::STRATA_ISA
