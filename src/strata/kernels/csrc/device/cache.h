// cache_write and pool_blocks; bits as cache/naive.py.
//
// A plane is data [pages, heads, page, dim] with table [slots, pages_per_slot]: entry p of slot s is
// data[table[s, p / page], :, p % page].
#pragma once

#include "quantise.h"
#include "small.h"

namespace strata::STRATA_ISA {

// Where value (head, c = 0) of an entry lies in a plane, in values.
STRATA_INLINE int64_t place_in(const int32_t* table, int64_t slot, int64_t entry, int64_t head, int64_t page,
                               int64_t pages_per_slot, int64_t heads, int64_t dim) {
    // Entries are int32; dividing 64-bit numbers costs a GPU ten times as much.
    const int number = static_cast<int>(entry), size = static_cast<int>(page);
    const int64_t page_at = table[slot * pages_per_slot + number / size];
    return ((page_at * heads + head) * page + number % size) * dim;
}

STRATA_INLINE uint16_t bf16_of_float(float x) {
    const uint32_t bits = bits_of_float(x);
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A group of 32 lanes writes head `i % heads` of entry `i / heads` of the list; -1 is no entry. x [entries, heads,
// dim]. Eight values of a lane are asked for before their place is known.
#define STRATA_CACHE_WRITE(type, T, write)                                                                         \
    STRATA_KERNEL(cache_write_##type,                                                                              \
                  (T* data, float* scales, const int32_t* table, const int32_t* slots, const int32_t* entries,     \
                   const float* x, int64_t count, int64_t page, int64_t pages_per_slot, int64_t heads, int64_t dim)) { \
        in_turn();                                                                                                 \
        const int64_t i = static_cast<int64_t>(block_x()) * (block_size() / 32) + warp();                          \
        if (i >= count) return;                                                                                    \
        constexpr int batch = 8;                                                                                   \
        const float* from = x + i * dim;                                                                           \
        float held[batch];                                                                                         \
        UNROLL                                                                                                     \
        for (int k = 0; k < batch; ++k) held[k] = lane() + 32 * k < dim ? from[lane() + 32 * k] : 0.0f;            \
        const int item = static_cast<int>(i) / static_cast<int>(heads);                                            \
        const int64_t entry = entries[item], head = i - item * heads;                                              \
        if (entry < 0) return;                                                                                     \
        const int64_t at = place_in(table, slots[item], entry, head, page, pages_per_slot, heads, dim);            \
        UNROLL                                                                                                     \
        for (int k = 0; k < batch; ++k)                                                                            \
            if (lane() + 32 * k < dim) write(data, scales, at + lane() + 32 * k, held[k]);                         \
        for (int64_t c = lane() + 32 * batch; c < dim; c += 32) write(data, scales, at + c, from[c]);              \
    }

STRATA_INLINE void write_float(float* data, float*, int64_t at, float x) { data[at] = x; }

STRATA_INLINE void write_bf16(uint16_t* data, float*, int64_t at, float x) { data[at] = bf16_of_float(x); }

// dim is a multiple of 32, so every lane comes here.
STRATA_INLINE void write_int8(int8_t* data, float* scales, int64_t at, float x) {
    float d;
    data[at] = static_cast<int8_t>(quantise_lane(x, d));
    if (lane() == 0) scales[at / 32] = d;
}

STRATA_CACHE_WRITE(f32, float, write_float)
STRATA_CACHE_WRITE(bf16, uint16_t, write_bf16)
STRATA_CACHE_WRITE(int8, int8_t, write_int8)

#undef STRATA_CACHE_WRITE

// One thread a value of out [rows, dim], of `count` values; block -1 gives 0. The plane has no heads.
STRATA_KERNEL(pool_blocks, (const float* data, const int32_t* table, const int32_t* slots, const int32_t* blocks,
                            float* out, int64_t count, int64_t page, int64_t pages_per_slot, int64_t dim,
                            int64_t ratio)) {
    in_turn();
    const int64_t i = element();
    if (i >= count) return;
    const int64_t block = blocks[i / dim], slot = slots[i / dim], c = i % dim;
    if (block < 0) {
        out[i] = 0.0f;
        return;
    }
    const int64_t first = block * ratio;
    float total = data[place_in(table, slot, first, 0, page, pages_per_slot, 1, dim) + c];
    for (int64_t entry = first + 1; entry < first + ratio; ++entry)
        total = total + data[place_in(table, slot, entry, 0, page, pages_per_slot, 1, dim) + c];
    out[i] = total / static_cast<float>(ratio);
}

}  // namespace strata::STRATA_ISA
