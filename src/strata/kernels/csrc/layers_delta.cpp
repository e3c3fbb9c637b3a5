#include "layers_delta.h"

#include "layers_simd.h"

namespace strata::STRATA_ISA {
namespace {

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

// What a worker holds of up to kDeltaRows rows of a head, and kDeltaColumns columns of its state: 16 KB for 128 dims,
// which stay in the first cache over all rows.
struct Held {
    float* q;      // [kDeltaRows][key_dim], normalised
    float* k;      // [kDeltaRows][key_dim], normalised
    float* v;      // [kDeltaRows][kDeltaColumns]
    float* beta;   // [kDeltaRows]
    float* decay;  // [kDeltaRows]
    float* block;  // [key_dim][kDeltaColumns]
    bool stays;    // the head's state stays as it is
};

constexpr int kColumnParts = kDeltaColumns / W;

struct Columns {
    V part[kColumnParts];
};

STRATA_INLINE Columns columns_zero() {
    Columns columns;
    for (int c = 0; c < kColumnParts; ++c) columns.part[c] = vzero();
    return columns;
}

// block = state * decay, read = block^T k. `state` has its rows `stride` apart. Meanwhile half as many values of the
// next head's state, at `ahead`, come to the second cache, and the other half in end_rows: all at once they would hold
// up the loads here (two rows of 32 heads: 157 to 181 us with memory's part, instead of 128 to 140).
STRATA_INLINE Columns begin_rows(const float* state, int64_t stride, const float* ahead, float* block, int64_t key_dim,
                                 const float* k, float decay) {
    Columns read = columns_zero();
    const V fade = vset(decay);
    for (int64_t i = 0; i < key_dim; ++i) {
        const V key = vset(k[i]);
        __builtin_prefetch(ahead + i * 16, 0, 2);
        for (int c = 0; c < kColumnParts; ++c) {
            const V s = vmul(vload(state + i * stride + c * W), fade);
            vstore(block + i * kDeltaColumns + c * W, s);
            read.part[c] = vfma(s, key, read.part[c]);
        }
    }
    return read;
}

// Ends a row (update, output) and begins the next one (decay, read): one load and one store per state value and row.
STRATA_INLINE Columns pass_row(float* block, int64_t key_dim, const float* q, const float* k, float next_decay,
                               const Columns& change, Columns& sum) {
    Columns read = columns_zero();
    sum = read;
    const V fade = vset(next_decay);
    for (int64_t i = 0; i < key_dim; ++i) {
        const V key = vset(k[i]), query = vset(q[i]), next = vset(k[key_dim + i]);
        for (int c = 0; c < kColumnParts; ++c) {
            float* place = block + i * kDeltaColumns + c * W;
            V s = vfma(key, change.part[c], vload(place));
            sum.part[c] = vfma(s, query, sum.part[c]);
            s = vmul(s, fade);
            vstore(place, s);
            read.part[c] = vfma(s, next, read.part[c]);
        }
    }
    return read;
}

// Ends the last row: the updated block goes back to `state`, unless that is held as it was.
template <bool held>
STRATA_INLINE Columns end_rows(const float* block, float* state, int64_t stride, const float* ahead, int64_t key_dim,
                               const float* q, const float* k, const Columns& change) {
    Columns sum = columns_zero();
    for (int64_t i = 0; i < key_dim; ++i) {
        const V key = vset(k[i]), query = vset(q[i]);
        __builtin_prefetch(ahead + (key_dim + i) * 16, 0, 2);
        for (int c = 0; c < kColumnParts; ++c) {
            const V s = vfma(key, change.part[c], vload(block + i * kDeltaColumns + c * W));
            if constexpr (!held) vstore(state + i * stride + c * W, s);
            sum.part[c] = vfma(s, query, sum.part[c]);
        }
    }
    return sum;
}

STRATA_INLINE void copy_rows(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t rows,
                             int64_t width) {
    for (int64_t i = 0; i < rows; ++i)
        memcpy(to + i * to_stride, from + i * from_stride, static_cast<size_t>(width) * sizeof(float));
}

// kDeltaColumns columns over n rows; `state` has its rows `stride` apart and may be the block itself.
STRATA_INLINE void run_columns(const Held& held, int64_t key_dim, float* state, int64_t stride, const float* ahead,
                               float* out, int64_t out_stride, int64_t n) {
    Columns read = begin_rows(state, stride, ahead, held.block, key_dim, held.k, held.decay[0]), sum;
    for (int64_t t = 0; t < n; ++t) {
        Columns change;
        const V beta = vset(held.beta[t]);
        for (int c = 0; c < kColumnParts; ++c)
            change.part[c] = vmul(beta, vsub(vload(held.v + t * kDeltaColumns + c * W), read.part[c]));
        const float* q = held.q + t * key_dim;
        const float* k = held.k + t * key_dim;
        if (t + 1 < n)
            read = pass_row(held.block, key_dim, q, k, held.decay[t + 1], change, sum);
        else
            sum = held.stays ? end_rows<true>(held.block, state, stride, ahead, key_dim, q, k, change)
                             : end_rows<false>(held.block, state, stride, ahead, key_dim, q, k, change);
        for (int c = 0; c < kColumnParts; ++c) vstore(out + t * out_stride + c * W, sum.part[c]);
    }
}

// All columns of a head for the n rows from `row` on, whose q and k are held.
void run_rows(const DeltaCall& call, const Head& head, const Held& held, int64_t row, int64_t n, int64_t column) {
    const int64_t stride = call.value_dim;
    for (; column < stride; column += kDeltaColumns) {
        const int64_t left = stride - column, width = left < kDeltaColumns ? left : kDeltaColumns;
        const float* v = head.v + row * head.row_width + column;
        float* out = head.out + row * head.out_stride + column;
        if (width == kDeltaColumns) {
            for (int64_t t = 0; t < n; ++t)
                for (int c = 0; c < kColumnParts; ++c)
                    vstore(held.v + t * kDeltaColumns + c * W, vload(v + t * head.row_width + c * W));
            const float* ahead = head.state + (column + stride) * call.key_dim;
            run_columns(held, call.key_dim, head.state + column, stride, ahead, out, head.out_stride, n);
        } else {
            memset(held.block, 0, static_cast<size_t>(call.key_dim * kDeltaColumns) * sizeof(float));
            memset(held.v, 0, static_cast<size_t>(n * kDeltaColumns) * sizeof(float));
            copy_rows(held.block, kDeltaColumns, head.state + column, stride, call.key_dim, width);
            copy_rows(held.v, kDeltaColumns, v, head.row_width, n, width);
            run_columns(held, call.key_dim, held.block, kDeltaColumns, held.block, held.v, kDeltaColumns, n);
            if (!held.stays) copy_rows(head.state + column, stride, held.block, kDeltaColumns, call.key_dim, width);
            copy_rows(out, head.out_stride, held.v, kDeltaColumns, n, width);
        }
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

STRATA_INLINE void normalise(const float* x, float* y, int64_t n, float eps, float scale) {
    const float r = 1.0f / __builtin_sqrtf(lane_dot(x, x, n) + eps);
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * r) * scale;
}

// One head's part of a row is short and the next row's far away: no hardware stream finds it.
constexpr int64_t kRowsAhead = 4;

STRATA_INLINE void fetch_row(const DeltaCall& call, const Head& head, int64_t at) {
    for (int64_t i = 0; i < call.key_dim; i += 16) {
        __builtin_prefetch(head.q + at + i);
        __builtin_prefetch(head.k + at + i);
    }
    for (int64_t i = 0; i < call.value_dim; i += 16) __builtin_prefetch(head.v + at + i, 0, 2);
}

void run_head(const DeltaCall& call, const int32_t* segment, bool stays, int64_t h, float* scratch) {
    const int64_t keys = call.key_heads * call.key_dim;
    const int64_t key_head = call.tiled ? h % call.key_heads : h / (call.value_heads / call.key_heads);
    const float* base = call.qkv;
    Head head = {call.state + (segment[0] * call.value_heads + h) * call.key_dim * call.value_dim,
                 base + key_head * call.key_dim,
                 base + keys + key_head * call.key_dim,
                 base + 2 * keys + h * call.value_dim,
                 call.beta + h,
                 call.decay + h,
                 call.out + h * call.value_dim,
                 2 * keys + call.value_heads * call.value_dim,
                 call.value_heads,
                 call.value_heads * call.value_dim};
    float* at = scratch;
    auto take = [&at](int64_t count) { return at += count, at - count; };
    Held held = {take(kDeltaRows * call.key_dim), take(kDeltaRows * call.key_dim),
                 take(kDeltaRows * kDeltaColumns), take(kDeltaRows), take(kDeltaRows),
                 take(kDeltaColumns * call.key_dim), stays};
    if (stays && segment[2] > kDeltaRows) {  // parts of the rows that follow each other need what they write
        float* copy = take(call.key_dim * call.value_dim);
        memcpy(copy, head.state, static_cast<size_t>(call.key_dim * call.value_dim) * sizeof(float));
        head.state = copy;
        stays = false;
        held.stays = false;
    }
    const int64_t end = segment[1] + segment[2];
    for (int64_t row = segment[1]; row < end; row += kDeltaRows) {
        const int64_t n = end - row < kDeltaRows ? end - row : kDeltaRows;
        for (int64_t t = 0; t < n; ++t) {
            const int64_t from = (row + t) * head.row_width, to = t * call.key_dim;
            if (row + t + kRowsAhead < end) fetch_row(call, head, from + kRowsAhead * head.row_width);
            normalise(head.q + from, held.q + to, call.key_dim, call.eps, call.scale);
            normalise(head.k + from, held.k + to, call.key_dim, call.eps, 1.0f);
            held.beta[t] = head.beta[(row + t) * head.gate_stride];
            held.decay[t] = head.decay[(row + t) * head.gate_stride];
        }
        int64_t column = 0;
        if (n == 1 && !stays) {
            column = step_columns<8>(call, head, held.q, held.k, row, column);
            column = step_columns<4>(call, head, held.q, held.k, row, column);
            column = step_columns<2>(call, head, held.q, held.k, row, column);
        }
        run_rows(call, head, held, row, n, column);
    }
}

void delta(Pool& pool, const DeltaCall& call, float* scratch) {
    const int64_t units = call.num_segments * call.value_heads;
    const int chunks = chunks_for(units, call.rows * call.value_heads * call.key_dim * call.value_dim, pool.threads());
    auto run = [&](int chunk, int worker) {
        for (int64_t u = chunk_begin(units, chunks, chunk); u < chunk_begin(units, chunks, chunk + 1); ++u)
            run_head(call, call.segments + u / call.value_heads * 3, call.held && call.held[u / call.value_heads],
                     u % call.value_heads, scratch + worker * delta_floats(call.key_dim, call.value_dim));
    };
    pool.parallel_for(chunks, run);
}

}  // namespace

extern const DeltaKernels delta_kernels = {delta};

}  // namespace strata::STRATA_ISA
