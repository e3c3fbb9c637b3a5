// attention_inputs: what becomes of the heads of a few rows before attention, in one launch: norm and rotation of queries
// and keys, and the keys' and values' places in the cache. A group of 32 lanes does a head; bits as kernels/joined.py.
#pragma once

#include "cache.h"
#include "norm.h"

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

// A lane's values of a head: those at lane, lane + 32, ..
struct HeadValues {
    float v[kHeadHeld];
};

STRATA_INLINE void keep_head(const Kept& to, const HeadValues& head, int64_t slot, int64_t entry, int64_t number,
                             int64_t heads, int64_t dim) {
    if (entry < 0) return;
    const int64_t at = place_in(to.table, slot, entry, number, to.page, to.pages_per_slot, heads, dim);
    UNROLL
    for (int k = 0; k < kHeadHeld; ++k)
        if (lane() + 32 * k < dim) keep_value(to, at + lane() + 32 * k, head.v[k]);
}

// Value c of a head in shared memory, rotated by its angle.
STRATA_INLINE float rotated(const float* head, int c, int half, bool pairs, float cos, float sin) {
    if (c >= 2 * half) return head[c];
    const bool first = pairs ? c % 2 == 0 : c < half;
    const int apart = pairs ? 1 : half;
    const float own = head[c], other = head[first ? c + apart : c - apart];
    return first ? own * cos - other * sin : own * cos + other * sin;
}

// q [rows, heads, dim] by steps `q_row` and `q_head`; k, v [rows, kv_heads, dim]; cos, sin [rows, half] -> q_out, k_out, and
// the entries of `slots` and `positions` of both planes. Weights are null where nothing is normalised. dim is kHeadValues
// at most. Grid: x groups of lanes, one for each head: of a row its queries, keys, then values.
STRATA_KERNEL_OF(kHeadThreads, attention_inputs,
                 (const float* q, const float* k, const float* v, const float* q_weight, const float* k_weight,
                  const float* cos, const float* sin, float* q_out, float* k_out, const int32_t* slots,
                  const int32_t* positions, void* keys, float* key_scales, const int32_t* key_table, int64_t key_page,
                  int64_t key_pages, int64_t key_type, void* values, float* value_scales, const int32_t* value_table,
                  int64_t value_page, int64_t value_pages, int64_t value_type, int64_t rows, int64_t heads,
                  int64_t kv_heads, int64_t dim, int64_t half, int64_t pairs, int64_t q_row, int64_t q_head, float eps)) {
    SHARED(float, heads_of_block, kHeadThreads / 32 * kHeadValues);
    const int number = static_cast<int>(row_of_group()), each = static_cast<int>(heads + 2 * kv_heads);
    const int row = number / each, place = number % each, size = static_cast<int>(dim), turned = static_cast<int>(half);
    const bool query = place < heads, key = !query && place < heads + kv_heads;
    const int64_t head = query ? place : (place - heads) % kv_heads;
    const float* const from = query ? q + row * q_row + head * q_head : (key ? k : v) + (row * kv_heads + head) * dim;
    const float* const weight = query ? q_weight : key ? k_weight : nullptr;
    const bool on = row < rows;  // or not, a whole group of lanes
    HeldValues<kHeadHeld> held;
    Plain source = {from};
    ask(held, source, weight, lane(), 32, on ? size : 0);
    if (!on) return;
    const int64_t slot = slots[row], entry = positions[row];
    HeadValues own, angle_cos, angle_sin;
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i) {
        const int c = lane() + 32 * i, angle = pairs ? c / 2 : c < turned ? c : c - turned;
        own.v[i] = held.own[i];
        angle_cos.v[i] = !query && !key ? 1.0f : c < 2 * turned ? cos[row * half + angle] : 1.0f;
        angle_sin.v[i] = !query && !key ? 0.0f : c < 2 * turned ? sin[row * half + angle] : 0.0f;
    }
    if (!query && !key) {
        keep_head({values, value_scales, value_table, value_page, value_pages, value_type}, own, slot, entry, head, kv_heads, dim);
        return;
    }
    float* const mine = heads_of_block + warp() * kHeadValues;
    const float r = weight ? narrow_factor(held, from, size, eps) : 1.0f;
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i)
        if (lane() + 32 * i < size) mine[lane() + 32 * i] = weight ? (held.own[i] * r) * held.scale[i] : held.own[i];
    sync_warp();
    float* const to = query ? q_out + (row * heads + head) * dim : k_out + (row * kv_heads + head) * dim;
    UNROLL
    for (int i = 0; i < kHeadHeld; ++i) {
        const int c = lane() + 32 * i;
        if (c < size) to[c] = own.v[i] = rotated(mine, c, turned, pairs != 0, angle_cos.v[i], angle_sin.v[i]);
    }
    if (key) keep_head({keys, key_scales, key_table, key_page, key_pages, key_type}, own, slot, entry, head, kv_heads, dim);
}

}  // namespace strata::STRATA_ISA
