// Gated delta rule for many rows of a sequence: bits as delta_rule/naive.py.
//
// A row's chains over the key dims cannot be cut, and the next row's chain needs this row's result; so what a row costs
// is the latency of one chain, if reading k and q from shared memory does not cost more. Two groups of 32 lanes share a
// block: both hold the same 32 columns of the state in registers. The first goes ahead from row to row and finds what is
// written (d); the second follows some rows behind, writes the same into its copy and computes the outputs, which
// nobody waits for. A lane holds two columns of half the dims, so that a value of k serves twice: lanes 0 .. 15 begin a
// chain over the lower half, lanes 16 .. 31 go on with it over the upper one.
#pragma once

#include "delta.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int delta_chunk = 8, delta_slots = 3;  // rows that arrive together; chunks in shared memory
constexpr int delta_most = 128, delta_half = delta_most / 2;  // key dims, and those of a lane
constexpr int delta_pitch = delta_most + 8;       // from row to row; 4 floats lie between the halves, on other banks

// A chunk in shared memory.
struct DeltaRows {
    float k[delta_chunk * delta_pitch], q[delta_chunk * delta_pitch], v[delta_chunk * 32], decay[delta_chunk], beta[delta_chunk];
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
        const int row = i / pieces, piece = i % pieces * 4, at = row * delta_pitch + piece + (piece < dim / 2 ? 0 : 4);
        copy16(to.k + at, from.k + (first + row) * from.qk_step + piece);
        copy16(to.q + at, from.q + (first + row) * from.qk_step + piece);
    }
    if (thread_x() < rows * 8)
        copy16(to.v + thread_x() * 4, from.v + (first + thread_x() / 8) * from.v_step + thread_x() % 8 * 4);
    if (warp() == 1 && lane() < rows) {
        to.decay[lane()] = from.decay[(first + lane()) * from.heads];
        to.beta[lane()] = from.beta[(first + lane()) * from.heads];
    }
}

// A lane's part of the state, two columns of half the dims, and the values of k or q that its second pass needs again.
struct DeltaState {
    float s[2][delta_half], kept[delta_half];
};

// Chains of both columns over all dims: the lower half's lanes have begun them in `sums`, the upper half's go on.
STRATA_INLINE void finish_chains(const DeltaState& state, int half, float (&sums)[2]) {
    const bool upper = lane() >= 16;
    UNROLL
    for (int c = 0; c < 2; ++c) {
        const float begun = shuffle_xor(sums[c], 16);
        sums[c] = upper ? begun : 0.0f;
    }
    UNROLL
    for (int i = 0; i < half; ++i)
        UNROLL
        for (int c = 0; c < 2; ++c) sums[c] = fma(state.s[c][i], state.kept[i], sums[c]);
    UNROLL
    for (int c = 0; c < 2; ++c) {
        const float whole = shuffle_xor(sums[c], 16);
        sums[c] = upper ? sums[c] : whole;
    }
}

// S = (S + k_before d_before) decay, m = S^T k: the row before is written while this one is read. k_before is kept.
STRATA_INLINE void read_row(DeltaState& state, int half, const float* k, float decay, const float (&d)[2], float (&sums)[2]) {
    sums[0] = sums[1] = 0.0f;
    UNROLL
    for (int i = 0; i < half; i += 4) {
        const Words4 now = load16(k + i);
        UNROLL
        for (int j = 0; j < 4; ++j) {
            const float value = float_of_bits(now.w[j]);
            UNROLL
            for (int c = 0; c < 2; ++c) {
                float& s = state.s[c][i + j];
                s = fma(state.kept[i + j], d[c], s) * decay;
                sums[c] = fma(s, value, sums[c]);
            }
            state.kept[i + j] = value;
        }
    }
    finish_chains(state, half, sums);
}

// S = S decay + k d, o = S^T q.
STRATA_INLINE void write_row(DeltaState& state, int half, const float* k, const float* q, float decay, const float (&d)[2],
                             float (&sums)[2]) {
    sums[0] = sums[1] = 0.0f;
    UNROLL
    for (int i = 0; i < half; i += 4) {
        const Words4 key = load16(k + i), query = load16(q + i);
        UNROLL
        for (int j = 0; j < 4; ++j) {
            const float value = float_of_bits(query.w[j]);
            UNROLL
            for (int c = 0; c < 2; ++c) {
                float& s = state.s[c][i + j];
                s = fma(float_of_bits(key.w[j]), d[c], s * decay);
                sums[c] = fma(s, value, sums[c]);
            }
            state.kept[i + j] = value;
        }
    }
    finish_chains(state, half, sums);
}

// The arguments of delta_rule (delta.h) with normalised qk; keys of a multiple of 8 dims, up to 128, and values of a
// multiple of 32. Grid: x column groups of all value heads, y segments; blocks of 64.
STRATA_KERNEL_OF(64, delta_prompt, (const float* qkv, const float* qk, const float* beta, const float* decay, float* state,
                                    float* out, const int32_t* segments, int64_t key_heads, int64_t value_heads,
                                    int64_t key_dim, int64_t value_dim, int64_t qk_width, int64_t tiled)) {
    SHARED(DeltaRows, chunks, delta_slots);
    SHARED(float, written, 2 * delta_chunk * 32);  // d of a row and column
    DELTA_DIMS;
    const int64_t across = columns / 32, h = block_x() / across, c = block_x() % across * 32;
    const int64_t slot = segments[3 * block_y()], begin = segments[3 * block_y() + 1];
    const int length = segments[3 * block_y() + 2], half = dim / 2, upper = lane() / 16, column = lane() % 16 * 2;
    if (length == 0) return;
    const int64_t key_head = tiled ? h % key_heads : h / (value_heads / key_heads);
    const int64_t width = 2 * key_heads * dim + value_heads * columns;
    const float* heads = qk + begin * qk_width + key_head * dim;
    const DeltaSource from = {heads, heads + key_heads * dim, qk_width,
                              qkv + begin * width + 2 * key_heads * dim + h * columns + c, width,
                              beta + begin * value_heads + h, decay + begin * value_heads + h, value_heads, length};
    float* place = state + ((slot * value_heads + h) * dim + upper * half) * columns + c + column;
    float* to = out + (begin * value_heads + h) * columns + c + column;
    DeltaState mine;
    UNROLL
    for (int i = 0; i < half; ++i) {
        const Words2 two = load8(place + i * columns);
        mine.s[0][i] = float_of_bits(two.w[0]), mine.s[1][i] = float_of_bits(two.w[1]);
        mine.kept[i] = 0.0f;
    }
    const int count = (length + delta_chunk - 1) / delta_chunk, own = upper * (half + 4);
    fetch_chunk(from, 0, dim, chunks[0]);
    commit_copies();
    float d[2] = {-0.0f, -0.0f};  // nothing is written before the first row: + 0 * -0 leaves zeros of either sign as they are
    KEEP_ROLLED
    for (int chunk = 0; chunk <= count; ++chunk) {
        wait_for_copies<0>();
        barrier();  // the chunk has landed, its predecessor's d are there, and the one before that is used up
        if (chunk + 1 < count) fetch_chunk(from, chunk + 1, dim, chunks[(chunk + 1) % delta_slots]);
        commit_copies();
        const int at = chunk - warp();  // the second group is a chunk behind
        if (at < 0 || at >= count) continue;
        const DeltaRows& here = chunks[at % delta_slots];
        float* change = written + at % 2 * delta_chunk * 32 + column;
        const int rows = least(delta_chunk, length - at * delta_chunk);
        float sums[2];
        KEEP_ROLLED
        for (int r = 0; r < rows; ++r) {
            const float* k = here.k + r * delta_pitch + own;
            if (warp() == 0) {
                read_row(mine, half, k, here.decay[r], d, sums);
                for (int x = 0; x < 2; ++x) d[x] = here.beta[r] * (here.v[r * 32 + column + x] - sums[x]);
                if (upper == 0) change[r * 32] = d[0], change[r * 32 + 1] = d[1];
            } else {
                d[0] = change[r * 32], d[1] = change[r * 32 + 1];
                write_row(mine, half, k, here.q + r * delta_pitch + own, here.decay[r], d, sums);
                float* row = to + (at * delta_chunk + r) * value_heads * columns;
                if (upper == 0) row[0] = sums[0], row[1] = sums[1];
            }
        }
    }
    if (warp() == 0) return;
    UNROLL
    for (int i = 0; i < half; ++i) place[i * columns] = mine.s[0][i], place[i * columns + 1] = mine.s[1][i];
}

}  // namespace strata::STRATA_ISA
