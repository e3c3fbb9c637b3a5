// One unit of attention over one block of positions: scores, softmax and weighted sums of a few rows' query heads that
// read one KV head; attention/naive.py, steps 1 to 4.
#pragma once

#include "layers_attention.h"
#include "layers_dots.h"
#include "layers_kv.h"
#include "layers_softmax.h"

namespace strata::STRATA_ISA {
namespace {

// Rows of one slot that pass over the cache together, with one KV head.
struct Unit {
    int64_t first, num_rows, kv_head;
};

// One block's result for a unit's queries.
struct Partial {
    float* top;
    float* total;
    float* sums;  // [queries][dim]
};

// A worker's own memory.
struct Area {
    int64_t* places;      // [kBlock] where head 0 of each entry lies, in heads
    const float** query;  // [queries]
    int64_t* seen;        // [queries] entries of the block
    float* tile;          // [kValueTile][dim] converted entries
    float* scores;        // [queries][kBlock]
};

// The scratch of a call, carved by attention_floats.
struct Layout {
    const AttentionCall& call;
    const AttentionPlan& plan;
    float* scratch;
    int64_t group, queries, units;

    Layout(const AttentionCall& c, const AttentionPlan& p, float* memory)
        : call(c), plan(p), scratch(memory), group(c.group()), queries(p.rows_per_bundle * group),
          units(p.bundles * c.kv_heads) {}

    int32_t* starts() const { return reinterpret_cast<int32_t*>(scratch); }
    float* running(int64_t unit) const { return scratch + padded(plan.bundles + 1) + unit * 2 * padded(queries); }
    float* partials() const { return running(units); }
    Partial partial(int64_t i) const {
        float* at = partials() + i * partial_floats(queries, call.dim);
        return {at, at + padded(queries), at + 2 * padded(queries)};
    }
    Area area(int64_t worker, int64_t threads) const {
        const int64_t held = plan.blocks_at_once ? units * plan.blocks_at_once : threads;
        float* at = partials() + held * partial_floats(queries, call.dim) + worker * worker_floats(queries, call.dim);
        float* query = at + 4 * kBlock;
        float* tile = query + 4 * padded(queries);
        return {reinterpret_cast<int64_t*>(at), reinterpret_cast<const float**>(query),
                reinterpret_cast<int64_t*>(query + 2 * padded(queries)), tile, tile + padded(kValueTile * call.dim)};
    }
    Unit unit(int64_t i) const {
        const int32_t* start = starts() + i / call.kv_heads;
        return {start[0], start[1] - start[0], i % call.kv_heads};
    }
    // Where a query's vector starts in q and out.
    int64_t place(const Unit& unit, int64_t query) const {
        return ((unit.first + query / group) * call.heads + unit.kv_head * group + query % group) * call.dim;
    }
};

// Entries j0 .. j0 + n of a row's positions or list; places beyond n, up to a multiple of 16, repeat the first.
void fill_places(const AttentionCall& call, const Plane& plane, int64_t row, int64_t j0, int64_t n, int64_t* places) {
    const int32_t* table = plane.table + call.slot[row] * plane.pages_per_slot;
    if (call.listed) {
        const int32_t* listed = call.listed + row * call.list_width + j0;
        for (int64_t j = 0; j < n; ++j) places[j] = plane.place(table, listed[j]);
    } else {
        int64_t page = j0 / plane.page, inside = j0 % plane.page;
        for (int64_t j = 0; j < n; ++page, inside = 0)
            for (const int64_t first = plane.place(table, page * plane.page); inside < plane.page && j < n; ++inside)
                places[j++] = first + inside;
    }
    for (int64_t j = n; j < padded(n); ++j) places[j] = places[0];
}

// `count` entries of one KV head as floats: entry i starts at base + offset[i].
struct Tile {
    const float* base;
    int64_t offset[kValueTile];
};

// Asks for the entries of the next tile, a few lines at a time beside the work on this one: one core's line buffers
// hold two dozen, and waiting for memory between tiles cost half of a decode step's attention.
struct Ahead {
    const char* base;
    const int64_t* entry;
    const int64_t* end;
    int64_t entry_bytes, byte, share;

    Ahead(const Plane& plane, int64_t first, const int64_t* places, int64_t count, int64_t steps)
        : base(static_cast<const char*>(plane.data) + first * plane.value_bytes()), entry(places),
          end(places + (count > 0 ? count : 0)), entry_bytes(plane.dim * plane.value_bytes()), byte(0),
          share((count * ((entry_bytes + 63) / 64) + steps - 1) / steps) {}

    void step() {
        for (int64_t left = share; left > 0 && entry != end; --left) {
            __builtin_prefetch(base + *entry * entry_bytes + byte, 0, 2);
            byte += 64;
            if (byte >= entry_bytes) byte = 0, ++entry;
        }
    }
};

template <int N>
struct Count {
    static constexpr int value = N;
};

// fn(first query, Count of queries) for kQueries at a time, then for the rest.
template <class F>
STRATA_INLINE void by_queries(int64_t first, int64_t end, const F& fn) {
    for (; first + kQueries <= end; first += kQueries) fn(first, Count<kQueries>{});
    if (end - first == 2) fn(first, Count<2>{});
    if (end - first == 1) fn(first, Count<1>{});
}

// One unit and one block of positions: prepare, score, normalise, sum; in this order.
struct BlockWork {
    const Layout& layout;
    const AttentionCall& call;
    Unit unit;
    int64_t block, queries, longest;
    Area area;
    Partial to;

    BlockWork(const Layout& l, const Unit& u, int64_t b, const Area& a, const Partial& p)
        : layout(l), call(l.call), unit(u), block(b), queries(u.num_rows * l.group), longest(0), area(a), to(p) {
        const int64_t j0 = block * kBlock;
        for (int64_t r = 0, i = 0; r < unit.num_rows; ++r) {
            int64_t n = call.seen(unit.first + r) - j0;
            n = n < 0 ? 0 : n < kBlock ? n : kBlock;
            longest = n > longest ? n : longest;
            const float* q = call.q + layout.place(unit, i);
            for (int64_t g = 0; g < layout.group; ++g, ++i, q += call.dim) {
                area.query[i] = q;
                area.seen[i] = n;
            }
        }
    }

    void run() const {
        fill_places(call, call.keys, unit.first, block * kBlock, longest, area.places);
        score();
        normalise();
        if (call.values.table != call.keys.table || call.values.page != call.keys.page)
            fill_places(call, call.values, unit.first, block * kBlock, longest, area.places);
        sum();
    }

    // The first query that sees more than t entries of the block.
    int64_t first_beyond(int64_t t) const {
        int64_t i = 0;
        while (i < queries && area.seen[i] <= t) ++i;
        return i;
    }

    int64_t first_value(const Plane& plane) const { return plane.head_step() * unit.kv_head; }

    // Floats are read where they are; other types are converted to the worker's memory.
    Tile open(const Plane& plane, int64_t t, int64_t count) const {
        const bool there = plane.type == KvType::f32;
        Tile tile;
        tile.base = there ? plane.floats() + first_value(plane) : area.tile;
        for (int64_t i = 0; i < count; ++i) tile.offset[i] = (there ? area.places[t + i] : i) * call.dim;
        for (int64_t i = 0; i < count && !there; ++i)
            read_values(plane, area.places[t + i] * call.dim + first_value(plane), call.dim, area.tile + i * call.dim);
        return tile;
    }

    // What comes after the tile at t: the next one of this plane, then the first values.
    Ahead beyond(int64_t t, int64_t size, const Plane& plane) const {
        const int64_t batches = (queries - first_beyond(t) + kQueries - 1) / kQueries, left = longest - t - size;
        if (left > 0 || &plane == &call.values)
            return {plane, first_value(plane), area.places + t + size, left < size ? left : size, 4 * batches};
        const int64_t values = longest < kValueTile ? longest : kValueTile;
        return {call.values, first_value(call.values), area.places, values, 4 * batches};
    }

    void score() const {
        const V scale = vset(call.scale);
        for (int64_t t = 0; t < longest; t += W) {
            const Tile tile = open(call.keys, t, W);
            Ahead ahead = beyond(t, W, call.keys);
            by_queries(first_beyond(t), queries, [&](int64_t i, auto count) {
                constexpr int Q = decltype(count)::value;
                V dots[Q];
                key_dots<Q>(area.query + i, tile.base, tile.offset, call.dim, dots, [&] { ahead.step(); });
                for (int q = 0; q < Q; ++q) vstore(area.scores + (i + q) * kBlock + t, vmul(dots[q], scale));
            });
        }
    }

    void normalise() const {
        for (int64_t i = 0; i < queries; ++i) {
            const int64_t n = area.seen[i];
            float* s = area.scores + i * kBlock;
            to.top[i] = largest(s, n);
            exp_below(s, n, to.top[i]);
            to.total[i] = lane_sum(s, n);
        }
    }

    void sum() const {
        memset(to.sums, 0, static_cast<size_t>(queries * call.dim) * sizeof(float));
        for (int64_t t = 0; t < longest; t += kValueTile) {
            const int64_t left = longest - t, n = left < kValueTile ? left : kValueTile;
            const Tile tile = open(call.values, t, n);
            Ahead ahead = beyond(t, kValueTile, call.values);
            by_queries(first_beyond(t), queries, [&](int64_t i, auto count) {
                sum_tile<decltype(count)::value>(tile, t, n, i, ahead);
            });
        }
    }

    template <int Q>
    inline __attribute__((always_inline)) void sum_tile(const Tile& tile, int64_t t, int64_t n, int64_t i,
                                                        Ahead& ahead) const {
        float* sums[Q];
        const float* e[Q];
        int64_t seen[Q], shared = n;
        for (int q = 0; q < Q; ++q) {
            sums[q] = to.sums + (i + q) * call.dim;
            e[q] = area.scores + (i + q) * kBlock + t;
            seen[q] = area.seen[i + q] - t < n ? area.seen[i + q] - t : n;
            shared = seen[q] < shared ? seen[q] : shared;
        }
        if (shared < 0) shared = 0;
        add_all_values<Q>(sums, e, tile.base, tile.offset, 0, shared, call.dim, [&] { ahead.step(); });
        for (int q = 0; q < Q && Q > 1; ++q)
            if (seen[q] > shared) add_rest(sums + q, e + q, tile, shared, seen[q]);
    }

    // Entries that the other queries beside this one do not see: the diagonal of a prompt.
    __attribute__((noinline)) void add_rest(float* const* sums, const float* const* e, const Tile& tile, int64_t from,
                                            int64_t end) const {
        add_all_values<1>(sums, e, tile.base, tile.offset, from, end, call.dim, [] {});
    }
};

}  // namespace
}  // namespace strata::STRATA_ISA
