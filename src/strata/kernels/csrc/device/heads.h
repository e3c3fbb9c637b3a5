// attention_inputs: what becomes of the heads of a few rows before attention, in one launch: norm and rotation of
// queries and keys, and the keys' and values' places in the cache. A group of 32 lanes does a head; bits as
// kernels/joined.py.
#pragma once

#include "cache.h"
#include "norm_rows.h"

#include "../angles.h"

namespace strata::STRATA_ISA {

constexpr int kHeadThreads = 128;
constexpr int kHeadHeld = 8;  // values of a head of a lane
constexpr int kHeadValues = 32 * kHeadHeld;

// A plane of the cache of any type; type as in kernels/addresses.py.
struct Kept {
    void* data;
    float* scales;
    const int32_t* table;
    int64_t page, pages_per_slot, type;
};

// All lanes of a group write neighbouring values.
STRATA_INLINE void keep_value(const Kept& to, int64_t at, float x) {
    if (to.type == 0) write_float(static_cast<float*>(to.data), nullptr, at, x);
    else if (to.type == 1) write_bf16(static_cast<uint16_t*>(to.data), nullptr, at, x);
    else write_int8(static_cast<int8_t*>(to.data), to.scales, at, x);
}

// Value c of a head in shared memory, rotated by its angle.
STRATA_INLINE float rotated(const float* head, int c, int half, bool pairs, float cos, float sin) {
    if (c >= 2 * half) return head[c];
    const bool first = pairs ? c % 2 == 0 : c < half;
    const int apart = pairs ? 1 : half;
    const float own = head[c], other = head[first ? c + apart : c - apart];
    return first ? own * cos - other * sin : own * cos + other * sin;
}

// Heads of rows that become queries, keys or values: of a row its queries, then keys, then values. q [rows, heads, dim]
// by steps `q_row` and `q_head`; k [rows, key_heads, dim], v [rows, value_heads, dim]. Weights are null where nothing
// is normalised. dim is kHeadValues at most.
struct HeadSet {
    const float *q, *k, *v, *q_weight, *k_weight;
    float *q_out, *k_out;
    Kept keys, values;
    int64_t heads, key_heads, value_heads, dim, q_row, q_head;
    float eps;

    STRATA_METHOD int each() const { return static_cast<int>(heads + key_heads + value_heads); }
};

// What all heads of a step share: cos, sin [rows, half], and the rows' entries.
struct HeadRows {
    const float *cos, *sin;
    const int32_t *slots, *positions;
    int64_t rows, half;
    bool pairs;
};

constexpr int kHeadRoom = 3 * kHeadValues;  // of a group in shared memory: values, cosines, sines

// Head `number` of all rows' by a group of lanes, to the outputs and to the entries of both planes; comes to the
// kernel's turn.
STRATA_INLINE void put_head(const HeadSet& in, const HeadRows& step, int number, float* mine) {
    const int row = number / in.each(), place = number % in.each(), size = static_cast<int>(in.dim), turned = static_cast<int>(step.half);
    const bool query = place < in.heads, key = !query && place < in.heads + in.key_heads;
    const int64_t head = query ? place : key ? place - in.heads : place - in.heads - in.key_heads;
    const float* const from = query ? in.q + row * in.q_row + head * in.q_head
                              : key ? in.k + (row * in.key_heads + head) * in.dim
                                    : in.v + (row * in.value_heads + head) * in.dim;
    const float* const weight = query ? in.q_weight : key ? in.k_weight : nullptr;
    const bool on = row < step.rows;  // or not, a whole group of lanes
    float* const cosines = mine + kHeadValues;
    HeldValues<kHeadHeld> held;
    ask(held, from, weight, lane(), 32, on ? size : 0);
    if (!on) return;
    const int64_t slot = step.slots[row], entry = step.positions[row];
    const int angles = query || key ? 2 * turned : 0;
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i) {  // asked for with the head itself
        const int c = lane() + 32 * i, angle = step.pairs ? c / 2 : c < turned ? c : c - turned;
        cosines[c] = c < angles ? step.cos[row * step.half + angle] : 1.0f;
        cosines[kHeadValues + c] = c < angles ? step.sin[row * step.half + angle] : 0.0f;
    }
    const float r = weight ? narrow_factor(held, from, size, in.eps) : 1.0f;
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i)
        mine[lane() + 32 * i] = weight ? (held.own[i] * r) * held.scale[i] : held.own[i];
    sync_warp();
    const Kept to = query || key ? in.keys : in.values;
    const int64_t kept = key ? in.key_heads : in.value_heads;
    const int64_t at = query || entry < 0 ? -1 : place_in(to.table, slot, entry, head, to.page, to.pages_per_slot, kept, in.dim);
    float* const out = query ? in.q_out + (row * in.heads + head) * in.dim
                       : key ? in.k_out + (row * in.key_heads + head) * in.dim
                             : nullptr;
    KEEP_ROLLED  // short code: it is fetched anew for every launch
    for (int c = lane(); c < size; c += 32) {
        const float value = angles == 0 ? mine[c] : rotated(mine, c, turned, step.pairs, cosines[c], cosines[kHeadValues + c]);
        if (out) out[c] = value;
        if (at >= 0) keep_value(to, at + c, value);
    }
}

// Grid: x groups of lanes, one for each head of each row.
STRATA_KERNEL_OF(kHeadThreads, attention_inputs,
                 (const float* q, const float* k, const float* v, const float* q_weight, const float* k_weight,
                  const float* cos, const float* sin, float* q_out, float* k_out, const int32_t* slots,
                  const int32_t* positions, void* keys, float* key_scales, const int32_t* key_table, int64_t key_page,
                  int64_t key_pages, int64_t key_type, void* values, float* value_scales, const int32_t* value_table,
                  int64_t value_page, int64_t value_pages, int64_t value_type, int64_t rows, int64_t heads,
                  int64_t key_heads, int64_t value_heads, int64_t dim, int64_t half, int64_t pairs, int64_t q_row,
                  int64_t q_head, float eps)) {
    SHARED(float, heads_of_block, kHeadThreads / 32 * kHeadRoom);
    const HeadSet set = {q, k, v, q_weight, k_weight, q_out, k_out, {keys, key_scales, key_table, key_page, key_pages, key_type},
                         {values, value_scales, value_table, value_page, value_pages, value_type}, heads, key_heads,
                         value_heads, dim, q_row, q_head, eps};
    put_head(set, {cos, sin, slots, positions, rows, half, pairs != 0}, static_cast<int>(row_of_group()),
             heads_of_block + warp() * kHeadRoom);
}

// Keys of blocks of `ratio` entries: of a row that ends one the mean of its raw keys, normed and rotated to the block's
// first position. raw [pages, page, dim]; dim is kHeadValues at most.
struct BlockKeys {
    const float* raw;
    const int32_t* raw_table;
    int64_t raw_page, raw_pages;
    float* blocks;
    const int32_t* block_table;
    int64_t block_page, block_pages;
    const float* weight;
    const double* frequencies;
    int64_t dim, ratio;
    float eps;
};

// Where the raw key of entry `entry` lies, `back` rows before row `row`: among those of this step, `own` [rows, dim],
// or in the cache, which may not have these yet; own null: in the cache.
STRATA_INLINE const float* raw_key(const BlockKeys& in, const HeadRows& step, const float* own, int64_t row, int64_t slot,
                                   int64_t entry, int64_t back) {
    const int64_t other = row - back;
    if (own && other >= 0 && step.slots[other] == slot && step.positions[other] == entry) return own + other * in.dim;
    return in.raw + place_in(in.raw_table, slot, entry, 0, in.raw_page, in.raw_pages, 1, in.dim);
}

// The key of the block that row `row` ends, if it does, to its entry of `blocks`, by a group of lanes.
STRATA_INLINE void complete_block(const BlockKeys& in, const HeadRows& step, const float* own, int64_t row, float* mine) {
    const int end = step.positions[row] + 1, each = static_cast<int>(in.ratio), size = static_cast<int>(in.dim);
    const int turned = static_cast<int>(step.half);
    if (end % each != 0) return;
    const int64_t slot = step.slots[row], first = end - each;
    HeldValues<kHeadHeld> held;
    KEEP_ROLLED
    for (int entry = 0; entry < each; ++entry) {
        const float* const from = raw_key(in, step, own, row, slot, first + entry, each - 1 - entry);
        UNROLL
        for (int i = 0; i < kHeadHeld; ++i) {
            const float value = lane() + 32 * i < size ? from[lane() + 32 * i] : 0.0f;
            held.own[i] = entry == 0 ? value : held.own[i] + value;
        }
    }
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i) held.own[i] = held.own[i] / static_cast<float>(each);
    const float r = narrow_factor(held, mine, size, in.eps);  // which reads no more than `held`
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i)
        if (lane() + 32 * i < size) mine[lane() + 32 * i] = (held.own[i] * r) * in.weight[lane() + 32 * i];
    sync_warp();
    float* const to = in.blocks + place_in(in.block_table, slot, end / each - 1, 0, in.block_page, in.block_pages, 1, in.dim);
    KEEP_ROLLED
    for (int c = lane(); c < size; c += 32) {
        double sine = 0.0, cosine = 1.0;
        if (c < 2 * turned) sine_cosine(static_cast<double>(first) * in.frequencies[step.pairs ? c / 2 : c % turned], sine, cosine);
        to[c] = rotated(mine, c, turned, step.pairs, static_cast<float>(cosine), static_cast<float>(sine));
    }
}

// Grid: x groups of lanes, one for each row.
STRATA_KERNEL_OF(kHeadThreads, complete_blocks,
                 (const float* raw, const int32_t* raw_table, int64_t raw_page, int64_t raw_pages, float* blocks,
                  const int32_t* block_table, int64_t block_page, int64_t block_pages, const float* weight,
                  const double* frequencies, const int32_t* slots, const int32_t* positions, int64_t rows, int64_t dim,
                  int64_t half, int64_t pairs, int64_t ratio, float eps)) {
    in_turn();
    SHARED(float, means, kHeadThreads / 32 * kHeadValues);
    const int64_t row = row_of_group();
    if (row >= rows) return;
    const BlockKeys keys = {raw, raw_table, raw_page, raw_pages, blocks, block_table, block_page, block_pages, weight, frequencies,
                            dim, ratio, eps};
    complete_block(keys, {nullptr, nullptr, slots, positions, rows, half, pairs != 0}, nullptr, row, means + warp() * kHeadValues);
}

template <class T>
STRATA_INLINE T either(bool first, T a, T b) { return first ? a : b; }

STRATA_INLINE Kept kept_of(bool first, const Kept& a, const Kept& b) {
    return {either(first, a.data, b.data), either(first, a.scales, b.scales), either(first, a.table, b.table),
            either(first, a.page, b.page), either(first, a.pages_per_slot, b.pages_per_slot), either(first, a.type, b.type)};
}

// One of two sets, value by value: it stays in registers, and one code does both.
STRATA_INLINE HeadSet set_of(bool first, const HeadSet& a, const HeadSet& b) {
    return {either(first, a.q, b.q), either(first, a.k, b.k), either(first, a.v, b.v), either(first, a.q_weight, b.q_weight),
            either(first, a.k_weight, b.k_weight), either(first, a.q_out, b.q_out), either(first, a.k_out, b.k_out),
            kept_of(first, a.keys, b.keys), kept_of(first, a.values, b.values), either(first, a.heads, b.heads),
            either(first, a.key_heads, b.key_heads), either(first, a.value_heads, b.value_heads), either(first, a.dim, b.dim),
            either(first, a.q_row, b.q_row), either(first, a.q_head, b.q_head), either(first, a.eps, b.eps)};
}

// attention_inputs, an indexer's too (queries [rows, index_heads, index_dim], raw [rows, index_dim] to the raw keys),
// and the keys of the blocks that rows end. Grid: x groups of lanes: every head of every row, then the indexer's, then
// one for each row.
STRATA_KERNEL_OF(kHeadThreads, indexed_inputs,
                 (const float* q, const float* k, const float* v, const float* q_weight, const float* k_weight,
                  const float* cos, const float* sin, float* q_out, float* k_out, const int32_t* slots,
                  const int32_t* positions, void* keys, float* key_scales, const int32_t* key_table, int64_t key_page,
                  int64_t key_pages, int64_t key_type, void* values, float* value_scales, const int32_t* value_table,
                  int64_t value_page, int64_t value_pages, int64_t value_type, int64_t rows, int64_t heads,
                  int64_t key_heads, int64_t value_heads, int64_t dim, int64_t half, int64_t pairs, int64_t q_row,
                  int64_t q_head, const float* index_q, const float* raw, const float* index_weight, float* index_out,
                  float* raw_keys, const int32_t* raw_table, int64_t raw_page, int64_t raw_pages, float* blocks,
                  const int32_t* block_table, int64_t block_page, int64_t block_pages, const float* block_weight,
                  const double* frequencies, int64_t index_heads, int64_t index_dim, int64_t ratio, float eps, float index_eps,
                  float block_eps)) {
    SHARED(float, heads_of_block, kHeadThreads / 32 * kHeadRoom);
    float* const mine = heads_of_block + warp() * kHeadRoom;
    const HeadRows step = {cos, sin, slots, positions, rows, half, pairs != 0};
    const HeadSet main = {q, k, v, q_weight, k_weight, q_out, k_out, {keys, key_scales, key_table, key_page, key_pages, key_type},
                          {values, value_scales, value_table, value_page, value_pages, value_type}, heads, key_heads,
                          value_heads, dim, q_row, q_head, eps};
    const Kept to = {raw_keys, nullptr, raw_table, raw_page, raw_pages, 0};
    const HeadSet index = {index_q, nullptr, raw, index_weight, nullptr, index_out, nullptr, to, to, index_heads, 0, 1,
                           index_dim, index_heads * index_dim, index_dim, index_eps};
    const int number = static_cast<int>(row_of_group()), count = static_cast<int>(rows);
    const int of_main = count * main.each(), of_index = count * index.each();
    if (number < of_main + of_index) {
        const bool first = number < of_main;
        return put_head(set_of(first, main, index), step, first ? number : number - of_main, mine);
    }
    in_turn();
    if (number >= of_main + of_index + count) return;
    const BlockKeys blocks_of = {raw_keys, raw_table, raw_page, raw_pages, blocks, block_table, block_page, block_pages,
                                 block_weight, frequencies, index_dim, ratio, block_eps};
    complete_block(blocks_of, step, raw, number - of_main - of_index, mine);
}

}  // namespace strata::STRATA_ISA
