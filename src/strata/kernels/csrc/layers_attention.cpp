#include "layers_attention.h"

#include "layers_attention_block.h"

namespace strata::STRATA_ISA {
namespace {

// Joins one query's result of a block to what the blocks before it gave.
void merge(const Layout& layout, const Unit& unit, int64_t block, int64_t query, const Partial& from, float* running) {
    const int64_t dim = layout.call.dim;
    if (layout.call.seen(unit.first + query / layout.group) <= block * kBlock) return;
    float* top = running + query;
    float* total = top + padded(layout.queries);
    float* out = layout.call.out + layout.place(unit, query);
    if (block) return merge_block(top, total, out, from.top[query], from.total[query], from.sums + query * dim, dim);
    *top = from.top[query];
    *total = from.total[query];
    memcpy(out, from.sums + query * dim, static_cast<size_t>(dim) * sizeof(float));
}

void finish(const Layout& layout, const Unit& unit, int64_t query, const float* running) {
    const int64_t dim = layout.call.dim;
    float* out = layout.call.out + layout.place(unit, query);
    if (layout.call.seen(unit.first + query / layout.group) == 0) {
        for (int64_t c = 0; c < dim; ++c) out[c] = __builtin_nanf("");
        return;
    }
    const float total = running[padded(layout.queries) + query];
    for (int64_t c = 0; c < dim; ++c) out[c] = out[c] / total;
}

int64_t most_seen(const AttentionCall& call, const Unit& unit) {
    int64_t most = 0;
    for (int64_t r = unit.first; r < unit.first + unit.num_rows; ++r) most = call.seen(r) > most ? call.seen(r) : most;
    return most;
}

void run_whole(const Layout& layout, int64_t i, int64_t worker, int64_t threads) {
    const Unit unit = layout.unit(i);
    const Area area = layout.area(worker, threads);
    const Partial partial = layout.partial(worker);
    const int64_t seen = most_seen(layout.call, unit), queries = unit.num_rows * layout.group;
    for (int64_t b = 0; b * kBlock < seen; ++b) {
        BlockWork(layout, unit, b, area, partial).run();
        for (int64_t q = 0; q < queries; ++q) merge(layout, unit, b, q, partial, layout.running(i));
    }
    for (int64_t q = 0; q < queries; ++q) finish(layout, unit, q, layout.running(i));
}

// Few units, many positions: blocks are shared out, then queries to merge.
void run_split(Pool& pool, const Layout& layout) {
    const int64_t units = layout.units, at_once = layout.plan.blocks_at_once, queries = layout.queries;
    for (int64_t b0 = 0; b0 < layout.plan.blocks; b0 += at_once) {
        const int64_t left = layout.plan.blocks - b0, n = left < at_once ? left : at_once;
        auto compute = [&](int chunk, int worker) {
            const int64_t i = chunk % units, b = chunk / units;
            const Unit unit = layout.unit(i);
            if (most_seen(layout.call, unit) <= (b0 + b) * kBlock) return;
            const Area area = layout.area(worker, pool.threads());
            BlockWork(layout, unit, b0 + b, area, layout.partial(i * at_once + b)).run();
        };
        pool.parallel_for(static_cast<int>(units * n), compute);
        auto join = [&](int chunk, int) {
            const int64_t i = chunk / queries, q = chunk % queries;
            const Unit unit = layout.unit(i);
            if (q >= unit.num_rows * layout.group) return;
            for (int64_t b = 0; b < n; ++b)
                merge(layout, unit, b0 + b, q, layout.partial(i * at_once + b), layout.running(i));
            if (b0 + n == layout.plan.blocks) finish(layout, unit, q, layout.running(i));
        };
        pool.parallel_for(static_cast<int>(units * queries), join);
    }
}

// Cuts the rows into bundles: starts[0 .. bundles], the last being the number of rows.
void cut_rows(const AttentionCall& call, int64_t rows_per_bundle, int32_t* starts) {
    int64_t bundles = 0;
    for (int64_t t = 0; t < call.rows; ++t) {
        const bool same = t && call.slot[t] == call.slot[t - 1] && t - starts[bundles - 1] < rows_per_bundle;
        if (!same) starts[bundles++] = static_cast<int32_t>(t);
    }
    starts[bundles] = static_cast<int32_t>(call.rows);
}

void attend(Pool& pool, const AttentionCall& call, const AttentionPlan& plan, float* scratch) {
    const Layout layout(call, plan, scratch);
    cut_rows(call, plan.rows_per_bundle, layout.starts());
    if (plan.blocks_at_once) return run_split(pool, layout);
    const int64_t units = layout.units, threads = pool.threads();
    const bool tiny = threads == 1 || call.rows * call.heads * call.dim * plan.blocks * kBlock < 65536;
    auto run = [&](int chunk, int worker) {
        // The last rows of a prompt see the most: taken first, they leave no straggler.
        if (!tiny) return run_whole(layout, units - 1 - chunk, worker, threads);
        for (int64_t i = 0; i < units; ++i) run_whole(layout, i, worker, threads);
    };
    pool.parallel_for(tiny ? 1 : static_cast<int>(units), run);
}

}  // namespace

extern const AttentionKernels attention_kernels = {attend};

}  // namespace strata::STRATA_ISA
