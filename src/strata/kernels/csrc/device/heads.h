// attention_inputs: what becomes of the heads of a few rows before attention, in one launch: norm and rotation of queries
// and keys, and the keys' and values' places in the cache. A group of 32 lanes does a head; bits as kernels/joined.py.
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

// q [rows, heads, dim] by steps `q_row` and `q_head`; k [rows, key_heads, dim], v [rows, value_heads, dim]; cos, sin
// [rows, half] -> q_out, k_out, and the entries of `slots` and `positions` of both planes. Weights are null where nothing is
// normalised. dim is kHeadValues at most. Grid: x groups of lanes, one for each head: of a row its queries, keys, then values.
STRATA_KERNEL_OF(kHeadThreads, attention_inputs,
                 (const float* q, const float* k, const float* v, const float* q_weight, const float* k_weight,
                  const float* cos, const float* sin, float* q_out, float* k_out, const int32_t* slots,
                  const int32_t* positions, void* keys, float* key_scales, const int32_t* key_table, int64_t key_page,
                  int64_t key_pages, int64_t key_type, void* values, float* value_scales, const int32_t* value_table,
                  int64_t value_page, int64_t value_pages, int64_t value_type, int64_t rows, int64_t heads,
                  int64_t key_heads, int64_t value_heads, int64_t dim, int64_t half, int64_t pairs, int64_t q_row,
                  int64_t q_head, float eps)) {
    SHARED(float, heads_of_block, kHeadThreads / 32 * 3 * kHeadValues);  // values, cosines, sines
    const int number = static_cast<int>(row_of_group()), each = static_cast<int>(heads + key_heads + value_heads);
    const int row = number / each, place = number % each, size = static_cast<int>(dim), turned = static_cast<int>(half);
    const bool query = place < heads, key = !query && place < heads + key_heads;
    const int64_t head = query ? place : key ? place - heads : place - heads - key_heads;
    const float* const from = query ? q + row * q_row + head * q_head
                              : key ? k + (row * key_heads + head) * dim
                                    : v + (row * value_heads + head) * dim;
    const float* const weight = query ? q_weight : key ? k_weight : nullptr;
    const bool on = row < rows;  // or not, a whole group of lanes
    float *const mine = heads_of_block + warp() * 3 * kHeadValues, *const cosines = mine + kHeadValues;
    HeldValues<kHeadHeld> held;
    ask(held, from, weight, lane(), 32, on ? size : 0);
    if (!on) return;
    const int64_t slot = slots[row], entry = positions[row];
    const int angles = query || key ? 2 * turned : 0;
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i) {  // asked for with the head itself
        const int c = lane() + 32 * i, angle = pairs ? c / 2 : c < turned ? c : c - turned;
        cosines[c] = c < angles ? cos[row * half + angle] : 1.0f;
        cosines[kHeadValues + c] = c < angles ? sin[row * half + angle] : 0.0f;
    }
    const float r = weight ? narrow_factor(held, from, size, eps) : 1.0f;
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i)
        mine[lane() + 32 * i] = weight ? (held.own[i] * r) * held.scale[i] : held.own[i];
    sync_warp();
    const Kept to = query || key ? Kept{keys, key_scales, key_table, key_page, key_pages, key_type}
                                 : Kept{values, value_scales, value_table, value_page, value_pages, value_type};
    const int64_t kept = key ? key_heads : value_heads;
    const int64_t at = query || entry < 0 ? -1 : place_in(to.table, slot, entry, head, to.page, to.pages_per_slot, kept, dim);
    float* const out = query ? q_out + (row * heads + head) * dim : key ? k_out + (row * key_heads + head) * dim : nullptr;
    KEEP_ROLLED  // short code: it is fetched anew for every launch
    for (int c = lane(); c < size; c += 32) {
        const float value = angles == 0 ? mine[c] : rotated(mine, c, turned, pairs != 0, cosines[c], cosines[kHeadValues + c]);
        if (out) out[c] = value;
        if (at >= 0) keep_value(to, at + c, value);
    }
}

// Of each row that ends a block of `ratio` entries: the mean of their raw keys, normed and rotated to the block's first
// position, to the block's entry of `blocks`. raw [pages, page, dim]; dim is kHeadValues at most. Grid: x groups of lanes,
// one for each row.
STRATA_KERNEL_OF(kHeadThreads, complete_blocks,
                 (const float* raw, const int32_t* raw_table, int64_t raw_page, int64_t raw_pages, float* blocks,
                  const int32_t* block_table, int64_t block_page, int64_t block_pages, const float* weight,
                  const double* frequencies, const int32_t* slots, const int32_t* positions, int64_t rows, int64_t dim,
                  int64_t half, int64_t pairs, int64_t ratio, float eps)) {
    in_turn();
    SHARED(float, means, kHeadThreads / 32 * kHeadValues);
    const int64_t row = row_of_group();
    if (row >= rows) return;
    const int end = positions[row] + 1, each = static_cast<int>(ratio), size = static_cast<int>(dim), turned = static_cast<int>(half);
    if (end % each != 0) return;
    const int64_t slot = slots[row], first = end - each;
    HeldValues<kHeadHeld> held;
    KEEP_ROLLED
    for (int entry = 0; entry < each; ++entry) {
        const float* const from = raw + place_in(raw_table, slot, first + entry, 0, raw_page, raw_pages, 1, dim);
        UNROLL
        for (int i = 0; i < kHeadHeld; ++i) {
            const float value = lane() + 32 * i < size ? from[lane() + 32 * i] : 0.0f;
            held.own[i] = entry == 0 ? value : held.own[i] + value;
        }
    }
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i) held.own[i] = held.own[i] / static_cast<float>(each);
    float* const mine = means + warp() * kHeadValues;
    const float r = narrow_factor(held, mine, size, eps);  // which reads no more than `held`
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i)
        if (lane() + 32 * i < size) mine[lane() + 32 * i] = (held.own[i] * r) * weight[lane() + 32 * i];
    sync_warp();
    float* const to = blocks + place_in(block_table, slot, end / each - 1, 0, block_page, block_pages, 1, dim);
    KEEP_ROLLED
    for (int c = lane(); c < size; c += 32) {
        double sine = 0.0, cosine = 1.0;
        if (c < 2 * turned) sine_cosine(static_cast<double>(first) * frequencies[pairs ? c / 2 : c % turned], sine, cosine);
        to[c] = rotated(mine, c, turned, pairs != 0, static_cast<float>(cosine), static_cast<float>(sine));
    }
}

}  // namespace strata::STRATA_ISA
