// Attention of many rows that each have a list of positions of their own (QSA): a block of threads does one row and the
// query heads of one KV head; bits as attention/naive.py. No two rows share what they read, so nothing is kept in
// shared memory but scores: lane l of a group reads the values l, l + 32, .. of a key, as the lane rule has them, for
// two keys and all queries at once; and the threads of a value row read four dims each, for all queries. Blocks of 256
// positions are summed side by side and merged in order.
//
// Constants of a compilation: LIST_DIM (128 or 256), LIST_QUERIES (of a KV head, 16 at most), LIST_TYPE (of the cache).
#pragma once

#include "attention_block.h"

namespace strata::STRATA_ISA {

constexpr int list_dim = LIST_DIM, list_queries = LIST_QUERIES, list_type = LIST_TYPE;
constexpr int list_threads = list_dim == 256 && list_queries <= 12 ? 384 : 256;  // as their registers and scores have room
constexpr int list_across = list_dim / 4, list_blocks = list_threads / list_across;  // threads of a value row; side by side
constexpr int list_round = list_blocks * kBlock;                                     // positions
constexpr int list_step = list_threads / 16, list_ahead = 32;  // keys of a turn of all groups of lanes; read beyond a round
static_assert(list_step + 2 <= list_ahead);
constexpr int list_each = (list_queries * list_across + list_threads - 1) / list_threads;  // fours of the result of a thread

struct ListCache {
    const void* data;
    const float* scales;
};

// What a block keeps in shared memory. `weights` are scores, then exponentials, then the sums of the blocks.
struct ListMemory {
    float weights[list_blocks * list_queries * kPitch];
    int32_t keys[list_round + list_ahead], values[list_round + list_ahead];  // rows of the caches; the last one repeats
    float tops[list_blocks * list_queries], totals[list_blocks * list_queries];
    float keep[list_blocks * list_queries], join[list_blocks * list_queries];
    float state[list_queries * 2];  // M and Z so far
};

// Where value `at` of an entry lies.
STRATA_INLINE const uint8_t* list_place(const ListCache& from, int32_t row, int at) {
    constexpr int bytes = list_type == kKvFloat ? 4 : list_type == kKvHalf ? 2 : 1;
    return static_cast<const uint8_t*>(from.data) + at * bytes +
           static_cast<uint64_t>(static_cast<uint32_t>(row)) * static_cast<uint32_t>(list_dim * bytes);
}

STRATA_INLINE float list_scale(const ListCache& from, int32_t row, int at) {
    return from.scales[static_cast<int64_t>(row) * (list_dim / 32) + at / 32];
}

// Values lane, lane + 32, .. of an entry.
STRATA_INLINE void list_lane(const ListCache& from, int32_t row, float (&to)[list_dim / 32]) {
    const uint8_t* const place = list_place(from, row, lane());
    UNROLL
    for (int i = 0; i < list_dim / 32; ++i) {
        if (list_type == kKvFloat) to[i] = *reinterpret_cast<const float*>(place + 128 * i);
        else if (list_type == kKvHalf) to[i] = float_of_bits(static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(place + 64 * i)) << 16);
        else to[i] = static_cast<float>(*reinterpret_cast<const int8_t*>(place + 32 * i)) * list_scale(from, row, 32 * i);
    }
}

STRATA_INLINE Vec4 list_four(const ListCache& from, int32_t row, int at) {
    const uint8_t* const place = list_place(from, row, at);
    Vec4 four;
    if (list_type == kKvFloat) return *reinterpret_cast<const Vec4*>(place);
    if (list_type == kKvHalf) {
        const Words2 words = load8(place);
        for (int x = 0; x < 4; ++x) four.v[x] = float_of_bits(words.w[x / 2] >> 16 * (x % 2) << 16);
        return four;
    }
    const uint32_t word = load4(place);
    const float scale = list_scale(from, row, at);
    for (int x = 0; x < 4; ++x) four.v[x] = static_cast<float>(static_cast<int8_t>(word >> 8 * x)) * scale;
    return four;
}

// Bits of a query's number that say by which lanes its sum is kept, and what is left of the queries then.
constexpr int list_bits = list_queries % 4 == 0 ? 2 : list_queries % 2 == 0 ? 1 : 0, list_left = list_queries >> list_bits;
constexpr int list_alike = 16 >> list_bits;  // lanes that end with the same sums

// What a lane begins with as its query `slot`, so that it keeps at every level of the tree what has the lower number of
// a slot and gives away the other, without choosing.
STRATA_INLINE int list_query(int slot) { return slot ^ (lane() / list_alike & (1 << list_bits) - 1); }
STRATA_INLINE int list_key(int slot) { return slot ^ lane() >> 4; }

// The lane tree over the dots of two keys and all queries, both in slots: sums of queries u << list_bits | .. in
// dots[0][u].
STRATA_INLINE void list_tree(float (&dots)[2][list_queries]) {
    UNROLL
    for (int q = 0; q < list_queries; ++q) dots[0][q] = dots[0][q] + shuffle_xor(dots[1][q], 16);
    UNROLL
    for (int bit = list_bits - 1; bit >= 0; --bit) {
        UNROLL
        for (int q = 0; q < list_queries; ++q)
            if (q % (1 << list_bits) < 1 << bit) dots[0][q] = dots[0][q] + shuffle_xor(dots[0][q + (1 << bit)], list_alike << bit);
    }
    UNROLL
    for (int mask = list_alike / 2; mask > 0; mask /= 2) {
        UNROLL
        for (int u = 0; u < list_left; ++u) dots[0][u << list_bits] = dots[0][u << list_bits] + shuffle_xor(dots[0][u << list_bits], mask);
    }
}

// Of the lanes that end with the same sums each puts one.
STRATA_INLINE void put_scores(const float (&dots)[2][list_queries], ListMemory& memory, int j, int n, float scale) {
    const int mine = lane() % list_alike, query = list_query(mine << list_bits), at = j + list_key(0);
    constexpr int between = list_queries * kPitch - kBlock;  // of two neighbouring places' scores, if a block lies between
    float sum = dots[0][0];
    UNROLL
    for (int u = 1; u < list_left; ++u) sum = mine == u ? dots[0][u << list_bits] : sum;
    if (mine < list_left && at < n) memory.weights[query * kPitch + at + at / kBlock * between] = sum * scale;
}

// Scores of the round's n positions. The queries [queries][dim] are read anew: their registers serve the sums in
// between.
STRATA_INLINE void score_list(const ListCache& keys, const float* queries, ListMemory& memory, int n, float scale) {
    float q[list_queries][list_dim / 32], next[2][list_dim / 32];
    UNROLL
    for (int u = 0; u < list_queries; ++u)
        UNROLL
        for (int i = 0; i < list_dim / 32; ++i) q[u][i] = queries[list_query(u) * list_dim + 32 * i + lane()];
    const int32_t* at[2] = {memory.keys + 2 * warp() + list_key(0), memory.keys + 2 * warp() + list_key(1)};
    UNROLL
    for (int k = 0; k < 2; ++k) list_lane(keys, at[k][0], next[k]);
    KEEP_ROLLED
    for (int j = 2 * warp(); j < n; j += list_step) {
        float dots[2][list_queries] = {};
        UNROLL
        for (int i = 0; i < list_dim / 32; ++i)
            UNROLL
            for (int v = 0; v < 2 * list_queries; ++v) dots[v % 2][v / 2] = fma(q[v / 2][i], next[v % 2][i], dots[v % 2][v / 2]);
        UNROLL
        for (int k = 0; k < 2; ++k) list_lane(keys, *(at[k] += list_step), next[k]);
        list_tree(dots);
        put_scores(dots, memory, j, n, scale);
    }
}

// Steps 2, 3, 5 and 6 of M and Z for the blocks of the round.
STRATA_INLINE void weigh_list(ListMemory& memory, int n, bool start) {
    const int blocks = (n + kBlock - 1) / kBlock;
    for (int item = warp(); item < blocks * list_queries; item += list_threads / 32) {
        float top, total;
        softmax(memory.weights + item * kPitch, least(kBlock, n - item / list_queries * kBlock), top, total);
        if (lane() == 0) memory.tops[item] = top, memory.totals[item] = total;
    }
    barrier();
    if (thread_x() >= list_queries) return;
    float* const state = memory.state + 2 * thread_x();
    for (int b = 0; b < blocks; ++b) {
        const int item = b * list_queries + thread_x();
        const float before = state[0], top = memory.tops[item];
        const bool first = start && b == 0;
        const float best = first || top > before ? top : before;
        const float keep = shared_exp(before - best), join = shared_exp(top - best);
        state[0] = best;
        state[1] = first ? memory.totals[item] : fma(memory.totals[item], join, state[1] * keep);
        memory.keep[item] = keep;
        memory.join[item] = join;
    }
}

// Positions 4 i .. 4 i + 3 of a block, on their way.
struct ListFours {
    Vec4 v[4];
};

STRATA_INLINE void fetch_fours(const ListCache& values, const int32_t* rows, int c, ListFours& to) {
    const Words4 four = load16(rows);
    UNROLL
    for (int i = 0; i < 4; ++i) to.v[i] = list_four(values, static_cast<int32_t>(four.w[i]), c);
}

STRATA_INLINE void add_fours(const ListFours& now, const float* weights, Vec4 (&sums)[list_queries]) {
    UNROLL
    for (int q = 0; q < list_queries; ++q) {
        const Vec4 w = *reinterpret_cast<const Vec4*>(weights + q * kPitch);
        UNROLL
        for (int i = 0; i < 4; ++i)
            UNROLL
            for (int x = 0; x < 4; ++x) sums[q].v[x] = fma(w.v[i], now.v[i].v[x], sums[q].v[x]);
    }
}

// Step 4 for one block of n positions: four dims from `c` on of all queries. Two fours take turns, so that none is
// copied.
STRATA_INLINE void sum_list(const ListCache& values, const int32_t* rows, const float* weights, int n, int c,
                            Vec4 (&sums)[list_queries]) {
    ListFours even, odd;
    fetch_fours(values, rows, c, even);
    int left = n;
    KEEP_ROLLED
    for (; left >= 8; left -= 8, rows += 8, weights += 8) {
        fetch_fours(values, rows + 4, c, odd);
        add_fours(even, weights, sums);
        fetch_fours(values, rows + 8, c, even);
        add_fours(odd, weights + 4, sums);
    }
    if (left >= 4) {
        add_fours(even, weights, sums);
        left -= 4, rows += 4, weights += 4;
        fetch_fours(values, rows, c, even);
    }
    UNROLL
    for (int i = 0; i < 3; ++i) {
        if (i >= left) continue;
        UNROLL
        for (int q = 0; q < list_queries; ++q)
            UNROLL
            for (int x = 0; x < 4; ++x) sums[q].v[x] = fma(weights[q * kPitch + i], even.v[i].v[x], sums[q].v[x]);
    }
}

// The blocks' sums, by way of shared memory, joined in order: this thread's fours of all queries and dims.
STRATA_INLINE void join_list(ListMemory& memory, const Vec4 (&sums)[list_queries], int n, bool start, Vec4 (&so_far)[list_each]) {
    const int block = thread_x() / list_across, blocks = (n + kBlock - 1) / kBlock;
    barrier();  // all weights are used up
    if (block < blocks) {
        UNROLL
        for (int q = 0; q < list_queries; ++q)
            *reinterpret_cast<Vec4*>(memory.weights + (block * list_queries + q) * list_dim + thread_x() % list_across * 4) = sums[q];
    }
    barrier();
    UNROLL
    for (int u = 0; u < list_each; ++u) {
        const int at = thread_x() + u * list_threads, query = at / list_across;
        if (query >= list_queries) continue;
        for (int b = 0; b < blocks; ++b) {
            const int item = b * list_queries + query;
            const Vec4 a = *reinterpret_cast<const Vec4*>(memory.weights + item * list_dim + at % list_across * 4);
            const float keep = memory.keep[item], join = memory.join[item];
            UNROLL
            for (int x = 0; x < 4; ++x)
                so_far[u].v[x] = start && b == 0 ? a.v[x] : fma(a.v[x], join, so_far[u].v[x] * keep);
        }
    }
    barrier();  // the sums are read
}

// q, out [rows, heads, dim]; listed [rows, width], count [rows]. Grid: x rows, y KV heads. Dynamic shared: ListMemory.
STRATA_KERNEL_OF(list_threads, attention_list,
                 (const float* q, const void* keys, const float* key_scales, const int32_t* key_table, const void* values,
                  const float* value_scales, const int32_t* value_table, const int32_t* slot, const int32_t* listed,
                  const int32_t* count, float* out, int64_t kv_heads, int64_t key_page, int64_t key_pages,
                  int64_t value_page, int64_t value_pages, int64_t width, float scale)) {
    DYNAMIC_SHARED(ListMemory, shared);
    ListMemory& memory = *shared;
    const int row = block_x(), head = block_y(), all = count[row];
    const int32_t* key_of = key_table + slot[row] * key_pages;
    const int32_t* value_of_page = value_table + slot[row] * value_pages;
    const int64_t first_query = (row * kv_heads + head) * list_queries;
    Vec4 so_far[list_each] = {};
    if (thread_x() < 2 * list_queries) memory.state[thread_x()] = 0.0f;
    KEEP_ROLLED
    for (int j0 = 0; j0 < all; j0 += list_round) {
        const int n = least(list_round, all - j0);
        for (int i = thread_x(); i < n + list_ahead; i += list_threads) {
            const int entry = listed[row * width + j0 + least(i, n - 1)];
            memory.keys[i] = static_cast<int32_t>((key_of[entry / key_page] * kv_heads + head) * key_page + entry % key_page);
            memory.values[i] =
                static_cast<int32_t>((value_of_page[entry / value_page] * kv_heads + head) * value_page + entry % value_page);
        }
        barrier();
        score_list({keys, key_scales}, q + first_query * list_dim, memory, n, scale);
        barrier();
        weigh_list(memory, n, j0 == 0);
        Vec4 sums[list_queries] = {};
        const int block = thread_x() / list_across, left = n - block * kBlock;
        if (left > 0)
            sum_list({values, value_scales}, memory.values + block * kBlock, memory.weights + block * list_queries * kPitch,
                     least(kBlock, left), thread_x() % list_across * 4, sums);
        join_list(memory, sums, n, j0 == 0, so_far);
    }
    barrier();
    UNROLL
    for (int u = 0; u < list_each; ++u) {
        const int at = thread_x() + u * list_threads, query = at / list_across;
        if (query >= list_queries) continue;
        const float total = memory.state[2 * query + 1];  // 0 / 0 is the NaN of an empty list
        Vec4 result;
        for (int x = 0; x < 4; ++x) result.v[x] = so_far[u].v[x] / total;
        *reinterpret_cast<Vec4*>(out + (first_query + query) * list_dim + at % list_across * 4) = result;
    }
}

}  // namespace strata::STRATA_ISA
