// Gated delta rule for many rows of a sequence: bits as delta_rule/naive.py.
//
// A row's chains over the key dims cannot be cut, and the next row's chain needs this row's result; so what a row costs
// is the latency of one chain of multiply-adds, if a group of 32 lanes has a scheduler for itself and little else to do.
// A group holds 16 columns of the state, a lane half the dims of one: lanes 0 .. 15 begin a chain over the lower half,
// lanes 16 .. 31 go on with it over the upper one. Two chains go along together, that of what row t reads (m) and that of
// the row before's output (o): S is changed by d of row t - 1, gives o of it, decays, and is read for row t. The state
// before and after the decay is kept for the chains' second half.
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

// A lane's part of the state: as row t - 1 left it, and decayed for row t.
struct DeltaState {
    float left[delta_half], decayed[delta_half];
};

// A lane's dims of k and q of row t - 1, and of k of row t.
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

// S += k_before d, o = S^T q_before, S *= decay, m = S^T k. The whole sums are in the upper lanes, m in all.
STRATA_INLINE DeltaSums step_row(DeltaState& state, int half, const DeltaKeys& keys, float d, float decay) {
    DeltaSums sums = {0.0f, 0.0f};
    UNROLL
    for (int i = 0; i < half; i += 4) {
        float k_before[4], q_before[4], k[4];
        load_dims(keys.k_before + i, k_before);
        load_dims(keys.q_before + i, q_before);
        load_dims(keys.k + i, k);
        UNROLL
        for (int j = 0; j < 4; ++j) {
            float &left = state.left[i + j], &decayed = state.decayed[i + j];
            left = fma(k_before[j], d, decayed);
            sums.o = fma(left, q_before[j], sums.o);
            decayed = left * decay;
            sums.m = fma(decayed, k[j], sums.m);
        }
    }
    sums = {shuffle_xor(sums.o, 16), shuffle_xor(sums.m, 16)};  // of use to the upper lanes
    UNROLL
    for (int i = 0; i < half; i += 4) {
        float q_before[4], k[4];
        load_dims(keys.q_before + i, q_before);
        load_dims(keys.k + i, k);
        UNROLL
        for (int j = 0; j < 4; ++j) {
            sums.o = fma(state.left[i + j], q_before[j], sums.o);
            sums.m = fma(state.decayed[i + j], k[j], sums.m);
        }
    }
    const float whole = shuffle_xor(sums.m, 16);
    if (lane() < 16) sums.m = whole;
    return sums;
}

// The arguments of delta_rule (delta.h) with normalised qk; keys of a multiple of 8 dims, up to 128, and values of a
// multiple of 32. Grid: x column groups of all value heads, y segments; blocks of 64.
STRATA_KERNEL_OF(64, delta_prompt, (const float* qkv, const float* qk, const float* beta, const float* decay, float* state,
                                    float* out, const int32_t* segments, const int32_t* held, int64_t key_heads,
                                    int64_t value_heads, int64_t key_dim, int64_t value_dim, int64_t qk_width,
                                    int64_t tiled)) {
    SHARED(DeltaRows, chunks, delta_slots);
    SHARED(float, nothing, delta_half);
    if (thread_x() < delta_half) nothing[thread_x()] = 0.0f;
    DELTA_DIMS;
    const int64_t across = columns / 32, h = block_x() / across, c = block_x() % across * 32;
    const int64_t slot = segments[3 * block_y()], begin = segments[3 * block_y() + 1];
    const int length = segments[3 * block_y() + 2], half = dim / 2, upper = lane() / 16, column = warp() * 16 + lane() % 16;
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
    for (int i = 0; i < half; ++i) mine.decayed[i] = place[i * columns];
    const int count = (length + delta_chunk - 1) / delta_chunk, own = upper * (half + 4);
    fetch_chunk(from, 0, dim, chunks[0]);
    commit_copies();
    float d = -0.0f;  // nothing is written before the first row: + 0 * -0 leaves zeros of either sign as they are
    DeltaKeys keys = {nothing, nothing, nothing};
    KEEP_ROLLED
    for (int chunk = 0; chunk < count; ++chunk) {
        wait_for_copies<0>();
        barrier();  // the chunk has landed, and all but its predecessor's last row are used up
        if (chunk + 1 < count) fetch_chunk(from, chunk + 1, dim, chunks[(chunk + 1) % delta_slots]);
        commit_copies();
        const DeltaRows& here = chunks[chunk % delta_slots];
        const int rows = least(delta_chunk, length - chunk * delta_chunk);
        KEEP_ROLLED
        for (int r = 0; r < rows; ++r) {
            keys.k = here.k + r * delta_pitch + own;
            const float beta_here = here.beta[r], v = here.v[r * 32 + column];
            const DeltaSums sums = step_row(mine, half, keys, d, here.decay[r]);
            d = beta_here * (v - sums.m);
            if (upper && chunk + r > 0) to[0] = sums.o, to += value_heads * columns;
            keys.k_before = keys.k, keys.q_before = here.q + r * delta_pitch + own;
        }
    }
    keys.k = keys.k_before;
    const DeltaSums last = step_row(mine, half, keys, d, 1.0f);
    if (upper) to[0] = last.o;
    if (held && held[block_y()]) return;
    UNROLL
    for (int i = 0; i < half; ++i) place[i * columns] = mine.left[i];
}

}  // namespace strata::STRATA_ISA
