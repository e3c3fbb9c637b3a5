// Gated delta rule for many rows of a sequence: bits as delta_rule/naive.py.
//
// A row's chains over the key dims cannot be cut, and the next row's chain needs this row's result; so what a row costs
// is the latency of one chain. Two groups of 32 lanes share a block: both hold the same 32 columns of the state in
// registers. The first goes ahead from row to row and finds what is written (d); the second follows some rows behind,
// writes the same into its copy and computes the outputs, which nobody waits for.
#pragma once

#include "delta.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int delta_chunk = 8, delta_slots = 3;  // rows that arrive together; chunks in shared memory
constexpr int delta_most = 128;                   // key dims, for the size of the shared arrays

// A chunk in shared memory.
struct DeltaRows {
    float k[delta_chunk * delta_most], q[delta_chunk * delta_most], v[delta_chunk * 32], decay[delta_chunk], beta[delta_chunk];
};

// A sequence's rows on one head and 32 columns.
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

STRATA_INLINE void fetch_chunk(const DeltaSource& from, int chunk, int dim, DeltaRows& to) {
    const int first = chunk * delta_chunk, rows = least(delta_chunk, from.length - first), pieces = dim / 4;
    for (int i = thread_x(); i < rows * pieces; i += 64) {
        const int row = i / pieces, piece = i % pieces * 4;
        copy16(to.k + row * dim + piece, from.k + (first + row) * from.qk_step + piece);
        copy16(to.q + row * dim + piece, from.q + (first + row) * from.qk_step + piece);
    }
    if (thread_x() < rows * 8)
        copy16(to.v + thread_x() * 4, from.v + (first + thread_x() / 8) * from.v_step + thread_x() % 8 * 4);
    if (warp() == 1 && lane() < rows) {
        to.decay[lane()] = from.decay[(first + lane()) * from.heads];
        to.beta[lane()] = from.beta[(first + lane()) * from.heads];
    }
}

STRATA_INLINE Words4 four_at(const float* from, int i) { return load16(from + i); }

// S = (S + k_before d_before) decay, m = S^T k: the row before is written while this one is read.
STRATA_INLINE float read_row(float* s, int dim, const float* k_before, float d_before, const float* k, float decay) {
    float read = 0.0f;
    UNROLL
    for (int i = 0; i < dim; i += 4) {
        const Words4 old = four_at(k_before, i), now = four_at(k, i);
        UNROLL
        for (int j = 0; j < 4; ++j) {
            s[i + j] = fma(float_of_bits(old.w[j]), d_before, s[i + j]);
            s[i + j] = s[i + j] * decay;
            read = fma(s[i + j], float_of_bits(now.w[j]), read);
        }
    }
    return read;
}

// S = S decay + k d, o = S^T q.
STRATA_INLINE float write_row(float* s, int dim, const float* k, float d, const float* q, float decay) {
    float sum = 0.0f;
    UNROLL
    for (int i = 0; i < dim; i += 4) {
        const Words4 key = four_at(k, i), query = four_at(q, i);
        UNROLL
        for (int j = 0; j < 4; ++j) {
            s[i + j] = s[i + j] * decay;
            s[i + j] = fma(float_of_bits(key.w[j]), d, s[i + j]);
            sum = fma(s[i + j], float_of_bits(query.w[j]), sum);
        }
    }
    return sum;
}

// The arguments of delta_rule (delta.h) with normalised qk; keys of a multiple of 4 dims, up to 128, and values of a
// multiple of 32. Grid: x column groups of all value heads, y segments; blocks of 64.
STRATA_KERNEL_OF(64, delta_prompt, (const float* qkv, const float* qk, const float* beta, const float* decay, float* state,
                                    float* out, const int32_t* segments, int64_t key_heads, int64_t value_heads,
                                    int64_t key_dim, int64_t value_dim, int64_t qk_width, int64_t tiled)) {
    SHARED(DeltaRows, chunks, delta_slots);
    SHARED(float, written, 2 * delta_chunk * 32);  // d of a row and column
    DELTA_DIMS;
    const int64_t across = columns / 32, h = block_x() / across, c = block_x() % across * 32 + lane();
    const int64_t slot = segments[3 * block_y()], begin = segments[3 * block_y() + 1];
    const int length = segments[3 * block_y() + 2];
    if (length == 0) return;
    const int64_t key_head = tiled ? h % key_heads : h / (value_heads / key_heads);
    const int64_t width = 2 * key_heads * dim + value_heads * columns;
    const float* heads = qk + begin * qk_width + key_head * dim;
    const DeltaSource from = {heads, heads + key_heads * dim, qk_width,
                              qkv + begin * width + 2 * key_heads * dim + h * columns + c - lane(), width,
                              beta + begin * value_heads + h, decay + begin * value_heads + h, value_heads, length};
    float* place = state + (slot * value_heads + h) * dim * columns + c;
    float* to = out + (begin * value_heads + h) * columns + c;
    float s[kMostKeyDims];
    UNROLL
    for (int i = 0; i < dim; ++i) s[i] = place[i * columns];
    const int count = (length + delta_chunk - 1) / delta_chunk;
    fetch_chunk(from, 0, dim, chunks[0]);
    commit_copies();
    // Before the first row nothing is written: + 0 * -0 leaves every number as it is, zeros of either sign too.
    float* const nothing = chunks[delta_slots - 1].k + (delta_chunk - 1) * dim;
    for (int i = thread_x(); i < dim; i += 64) nothing[i] = 0.0f;
    float d = -0.0f;
    KEEP_ROLLED
    for (int chunk = 0; chunk <= count; ++chunk) {
        wait_for_copies<0>();
        barrier();  // the chunk has landed, its predecessor's d are there, and the one before that is used up
        if (chunk + 1 < count) fetch_chunk(from, chunk + 1, dim, chunks[(chunk + 1) % delta_slots]);
        commit_copies();
        const int mine = chunk - warp();  // the second group is a chunk behind
        if (mine < 0 || mine >= count) continue;
        const DeltaRows& here = chunks[mine % delta_slots];
        const DeltaRows& before = chunks[(mine + delta_slots - 1) % delta_slots];
        float* change = written + mine % 2 * delta_chunk * 32 + lane();
        const int rows = least(delta_chunk, length - mine * delta_chunk);
        KEEP_ROLLED
        for (int r = 0; r < rows; ++r) {
            if (warp() == 0) {
                const float* old = r > 0 ? here.k + (r - 1) * dim : before.k + (delta_chunk - 1) * dim;
                const float read = read_row(s, dim, old, d, here.k + r * dim, here.decay[r]);
                d = here.beta[r] * (here.v[r * 32 + lane()] - read);
                change[r * 32] = d;
            } else {
                const float sum = write_row(s, dim, here.k + r * dim, change[r * 32], here.q + r * dim, here.decay[r]);
                to[(mine * delta_chunk + r) * value_heads * columns] = sum;
            }
        }
    }
    if (warp() == 0) return;
    UNROLL
    for (int i = 0; i < dim; ++i) place[i * columns] = s[i];
}

}  // namespace strata::STRATA_ISA
