// How attention of a few rows ends: the thread blocks' sums of blocks of positions, joined in increasing order by the
// last of them to arrive (attention/naive.py, steps 5 to 7).
#pragma once

#include "attention_block.h"
#include "beside.h"

namespace strata::STRATA_ISA {

constexpr int kFewThreads = 256, kFewQueries = 8, kMostQueries = 32;
#if defined(ATTENTION_DIM)
constexpr int kDimParts = (ATTENTION_DIM + 31) / 32;
#else
constexpr int kDimParts = 8;
#endif

// Of a unit, where its blocks' terms and sums lie and what it makes. Query i of the unit is number first + i of all
// units.
struct Finish {
    float *tops, *totals, *sums;  // [units, queries, most_blocks], .. [dim]
    int32_t* arrived;             // [kMostQueries], by the first query of a part: thread blocks that are done; 0 in the end
    float* out;
    Beside beside;
    int64_t first, most_blocks;
    float* weights;  // of shared memory, used up by then
    float* z;        // [kFewQueries], of shared memory: the totals of the only block
    int32_t* last;   // of shared memory
};

// The place of a unit's query among all rows' heads.
STRATA_INLINE int64_t query_at(const Unit& unit, const Shape& shape, int num_heads, int query) {
    const int64_t row = unit.rows.first + query / shape.heads;
    return row * num_heads + unit.first_head + query % shape.heads;
}

// What a thread sums: dim c, for the queries of a group.
struct Dim {
    int c, group;
    bool on;
};

STRATA_INLINE int dim_threads(const Shape& shape) { return (shape.dim + 31) / 32 * 32; }

STRATA_INLINE Dim dim_of(const Shape& shape, int groups) {
    const int across = dim_threads(shape), c = thread_x() % across, group = thread_x() / across;
    return {c, group, c < shape.dim && group < groups};
}

STRATA_INLINE int64_t terms_at(const Finish& to, int query, int block) { return (to.first + query) * to.most_blocks + block; }

// One lane puts m and z of a block; `own` is the query's number in its part.
STRATA_INLINE void put_terms(const Finish& to, int query, int block, int own, float top, float total) {
    to.tops[terms_at(to, query, block)] = top;
    to.totals[terms_at(to, query, block)] = total;
    to.z[own] = total;
}

STRATA_ONE_COPY void put_quantised(uint8_t* by32, uint8_t* by16, int64_t cols, float value, int row, int column) {
    const Beside beside = {by32, by16, cols};
    beside.put(value, row, column);
}

// A value of the result, by all lanes of a group or none.
STRATA_INLINE void put_result(const Finish& to, const Unit& unit, const Shape& shape, int query, int c, float value) {
    const int row = unit.rows.first + query / shape.heads, column = (unit.first_head + query % shape.heads) * shape.dim + c;
    to.out[row * to.beside.cols + column] = value;
    if (to.beside.by32) put_quantised(to.beside.by32, to.beside.by16, to.beside.cols, value, row, column);
}

// The result where there is one block of positions.
template <int T, class Work>
STRATA_INLINE void put_only(const Finish& to, const Work& work, const Shape& shape, int query, const Dim& dim,
                            const float (&sums)[T]) {
    UNROLL
    for (int k = 0; k < T; ++k) {
        const int own = dim.group * T + k;
        if (!dim.on || query + own >= work.unit.queries) continue;
        const bool some = seen_here(work.seen, shape, work.unit, query + own, 0) > 0;
        put_result(to, work.unit, shape, query + own, dim.c, some ? sums[k] / to.z[own] : float_of_bits(0x7fc00000u));
    }
}

// Puts a block's sums; true, for all threads, when all others of the part are there too.
template <int T>
STRATA_INLINE bool put_sums(const Finish& to, const Shape& shape, int query, const Dim& dim, int block, int blocks,
                            const int (&seen)[T], const float (&sums)[T]) {
    UNROLL
    for (int k = 0; k < T; ++k)
        if (dim.on && seen[k] > 0) to.sums[terms_at(to, query + dim.group * T + k, block) * shape.dim + dim.c] = sums[k];
    barrier();
    if (thread_x() == 0) {
        fence_device();
        to.last[0] = atomic_add(to.arrived + query, 1) == blocks - 1;
        if (to.last[0]) to.arrived[query] = 0;
    }
    barrier();
    return to.last[0] != 0;
}

// How up to 32 blocks join those before them, lane by lane; the running maxima come first, all at once: of maxima any
// order gives the same one.
STRATA_INLINE void weigh_blocks(const Finish& to, int query, int own, int first, int count, float& so_far) {
    const int64_t at = terms_at(to, query, first);
    const float top_here = lane() < count ? to.tops[at + lane()] : -infinity();
    if (first == 0) so_far = shuffle(top_here, 0);
    float top = top_here > so_far ? top_here : so_far;
    for (int step = 1; step < 32; step *= 2) {
        const float before = shuffle(top, lane() >= step ? lane() - step : lane());
        top = before > top ? before : top;
    }
    const float below = shuffle(top, lane() > 0 ? lane() - 1 : 0), before = lane() > 0 ? below : so_far;
    float* const terms = to.weights + own * 96;
    terms[lane()] = shared_exp(before - top);
    terms[32 + lane()] = shared_exp(top_here - top);
    terms[64 + lane()] = lane() < count ? to.totals[at + lane()] : 0.0f;
    so_far = shuffle(top, 31);
}

// Z and A of one dim.
struct Joined {
    float total, sum;
};

// Up to 32 blocks of T queries, of which query k has counts[k]: its terms are 96 k values further, its sums k * step. All
// queries' sums of some blocks are asked for at once: what this takes is waiting for them.
template <int T>
STRATA_INLINE void join_terms(Joined (&so_far)[T], const float* terms, const float* sums, int64_t step, int dim, bool start,
                              const int (&counts)[T]) {
    constexpr int batch = T == 1 ? 16 : 32 / T;
    int longest = counts[0];
    UNROLL
    for (int k = 1; k < T; ++k) longest = most(longest, counts[k]);
    KEEP_ROLLED
    for (int b0 = 0; b0 < longest; b0 += batch) {
        float sum[T][batch];
        UNROLL
        for (int k = 0; k < T; ++k)
            UNROLL
            for (int i = 0; i < batch; ++i) sum[k][i] = b0 + i < counts[k] ? sums[k * step + (b0 + i) * dim] : 0.0f;
        UNROLL
        for (int k = 0; k < T; ++k)
            UNROLL
            for (int i = 0; i < batch; ++i) {
                const int b = b0 + i;
                if (b >= counts[k]) continue;
                const float* const of = terms + 96 * k + b;
                const float keep = of[0], with = of[32], total = of[64];
                const bool first = start && b == 0;
                so_far[k].total = first ? total : fma(total, with, so_far[k].total * keep);
                so_far[k].sum = first ? sum[k][i] : fma(sum[k][i], with, so_far[k].sum * keep);
            }
    }
}

// Joins all blocks of the part of Q queries from `query` on.
template <int Q, int T, class Work>
STRATA_INLINE void join_blocks(const Finish& to, const Work& work, const Shape& shape, int query, const Dim& dim,
                               int blocks) {
    fence_device();
    auto blocks_of = [&](int i) {
        if (i >= work.unit.queries) return 0;
        return (seen_by(work.seen, work.unit.rows.first + i / shape.heads) + kBlock - 1) / kBlock;
    };
    Joined so_far[T] = {};
    float top = 0.0f;
    KEEP_ROLLED
    for (int first = 0; first < blocks; first += 32) {
        barrier();  // the terms before are used up
        const int count = warp() < Q ? most(0, least(32, blocks_of(query + warp()) - first)) : 0;
        if (count > 0) weigh_blocks(to, query + warp(), warp(), first, count, top);
        barrier();
        const int own = dim.group * T;
        int here[T];
        UNROLL
        for (int k = 0; k < T; ++k) here[k] = dim.on ? least(32, blocks_of(query + own + k) - first) : 0;
        const float* const sums = to.sums + terms_at(to, query + own, first) * shape.dim + dim.c;
        join_terms<T>(so_far, to.weights + own * 96, sums, to.most_blocks * shape.dim, shape.dim, first == 0, here);
    }
    UNROLL
    for (int k = 0; k < T; ++k) {
        const int own = query + dim.group * T + k;
        if (!dim.on || own >= work.unit.queries) continue;
        const float value = blocks_of(own) > 0 ? so_far[k].sum / so_far[k].total : float_of_bits(0x7fc00000u);
        put_result(to, work.unit, shape, own, dim.c, value);
    }
}

}  // namespace strata::STRATA_ISA
