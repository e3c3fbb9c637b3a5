// Gated delta rule for many rows of a sequence: bits as delta_rule/naive.py.
//
// A row's chains over the key dims cannot be cut, and the next row's chain needs this row's result; so what a row costs
// is the latency of one chain of multiply-adds, if a group of 32 lanes has a scheduler for itself and little else to
// do. A lane holds a column of the state, and another group brings rows. Two chains go along together, that of what row
// t reads (m) and that of the row before's output (o): S is changed by d of row t - 1, gives o of it, decays, and is
// read for row t.
//
// All lanes read the same keys, and shared memory returns 32 words a cycle, so the fewer groups share a processor the
// better: half of the dims for a lane and twice the groups took a fifth more time.
#pragma once

#include "delta.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int delta_columns = 32;                // of a block
constexpr int delta_chunk = 8, delta_slots = 3;   // rows that arrive together; chunks in shared memory
constexpr int delta_most = 128;                   // key dims

// A chunk in shared memory.
struct DeltaRows {
    float k[delta_chunk * delta_most], q[delta_chunk * delta_most], v[delta_chunk * delta_columns], decay[delta_chunk],
        beta[delta_chunk];
};

// A sequence's rows on one head and a block's columns.
struct DeltaSource {
    const float* q;
    const float* k;
    int64_t qk_step;
    const float* v;
    int64_t v_step;
    const float* beta;
    const float* decay;
    int64_t heads;
    int length;
};

// By one group of lanes.
STRATA_INLINE void fetch_chunk(const DeltaSource& from, int chunk, int dim, DeltaRows& to) {
    const int first = chunk * delta_chunk, rows = least(delta_chunk, from.length - first);
    const float* q = from.q + first * from.qk_step + 4 * lane();
    const float* k = from.k + first * from.qk_step + 4 * lane();
    const float* v = from.v + first * from.v_step + 4 * lane();
    KEEP_ROLLED
    for (int row = 0; row < rows; ++row, q += from.qk_step, k += from.qk_step, v += from.v_step) {
        if (4 * lane() < dim) {
            copy16(to.k + row * delta_most + 4 * lane(), k);
            copy16(to.q + row * delta_most + 4 * lane(), q);
        }
        if (4 * lane() < delta_columns) copy16(to.v + row * delta_columns + 4 * lane(), v);
    }
    if (lane() < rows) {
        to.decay[lane()] = from.decay[(first + lane()) * from.heads];
        to.beta[lane()] = from.beta[(first + lane()) * from.heads];
    }
    commit_copies();
}

// k and q of row t - 1, and k of row t.
struct DeltaKeys {
    const float* k_before;
    const float* q_before;
    const float* k;
};

// The chains of o and m.
struct DeltaSums {
    float o, m;
};

STRATA_INLINE void load_dims(const float* from, float (&to)[4]) {
    const Words4 four = load16(from);
    UNROLL
    for (int j = 0; j < 4; ++j) to[j] = float_of_bits(four.w[j]);
}

// A lane's column: S += k_before d, o = S^T q_before, S *= decay, m = S^T k.
STRATA_INLINE DeltaSums step_row(float (&state)[delta_most], int dim, const DeltaKeys& keys, float d, float decay) {
    DeltaSums sums = {0.0f, 0.0f};
    UNROLL
    for (int i = 0; i < dim; i += 4) {
        float k_before[4], q_before[4], k[4];
        load_dims(keys.k_before + i, k_before);
        load_dims(keys.q_before + i, q_before);
        load_dims(keys.k + i, k);
        UNROLL
        for (int j = 0; j < 4; ++j) {
            const float left = fma(k_before[j], d, state[i + j]);
            sums.o = fma(left, q_before[j], sums.o);
            state[i + j] = left * decay;
            sums.m = fma(state[i + j], k[j], sums.m);
        }
    }
    return sums;
}

// The arguments of delta_rule (delta.h) with normalised qk; keys of a multiple of 4 dims, up to 128, and values of a
// multiple of 32. Grid: x column groups of all value heads, y segments; blocks of 64.
STRATA_KERNEL_BESIDE(64, 1, delta_prompt, (const float* qkv, const float* qk, const float* beta, const float* decay, float* state,
                                    float* out, const int32_t* segments, const int32_t* held, int64_t key_heads,
                                    int64_t value_heads, int64_t key_dim, int64_t value_dim, int64_t qk_width,
                                    int64_t tiled)) {
    SHARED(DeltaRows, chunks, delta_slots);
    SHARED(float, nothing, delta_most);
    for (int i = thread_x(); i < delta_most; i += 64) nothing[i] = 0.0f;
    DELTA_DIMS(key_dim, value_dim);
    const int64_t across = columns / delta_columns, h = block_x() / across, c = block_x() % across * delta_columns;
    const int64_t slot = segments[3 * block_y()], begin = segments[3 * block_y() + 1];
    const int length = segments[3 * block_y() + 2], column = lane();
    if (length == 0) return;
    const int64_t key_head = tiled ? h % key_heads : h / (value_heads / key_heads);
    const int64_t width = 2 * key_heads * dim + value_heads * columns;
    const float* heads = qk + begin * qk_width + key_head * dim;
    const DeltaSource from = {heads, heads + key_heads * dim, qk_width,
                              qkv + begin * width + 2 * key_heads * dim + h * columns + c, width,
                              beta + begin * value_heads + h, decay + begin * value_heads + h, value_heads, length};
    const bool fetches = warp() == 1;
    float* place = state + ((slot * value_heads + h) * dim) * columns + c + column;
    float* to = out + (begin * value_heads + h) * columns + c + column;
    float mine[delta_most];
    UNROLL
    for (int i = 0; i < dim; ++i) mine[i] = place[i * columns];
    if (fetches) fetch_chunk(from, 0, dim, chunks[0]);
    float d = -0.0f;  // nothing is written before the first row: + 0 * -0 leaves zeros of either sign as they are
    DeltaKeys keys = {nothing, nothing, nothing};
    KEEP_ROLLED
    for (int first = 0; first < length; first += delta_chunk) {
        wait_for_copies<0>();
        barrier();  // the chunk has landed, and all but its predecessor's last row are used up
        const int chunk = first / delta_chunk;
        if (fetches && first + delta_chunk < length) fetch_chunk(from, chunk + 1, dim, chunks[(chunk + 1) % delta_slots]);
        if (fetches) continue;
        const DeltaRows& here = chunks[chunk % delta_slots];
        const int rows = least(delta_chunk, length - first);
        KEEP_ROLLED
        for (int r = 0; r < rows; ++r) {
            keys.k = here.k + r * delta_most;
            const float beta_here = here.beta[r], v = here.v[r * delta_columns + column];
            const DeltaSums sums = step_row(mine, dim, keys, d, here.decay[r]);
            d = beta_here * (v - sums.m);
            if (first + r > 0) to[0] = sums.o, to += value_heads * columns;
            keys.k_before = keys.k, keys.q_before = here.q + r * delta_most;
        }
    }
    if (fetches) return;
    const DeltaSums last = step_row(mine, dim, keys, d, 1.0f);
    to[0] = last.o;
    if (held && held[block_y()]) return;
    UNROLL
    for (int i = 0; i < dim; ++i) place[i * columns] = mine[i];
}

}  // namespace strata::STRATA_ISA
