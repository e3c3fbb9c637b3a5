// linear and experts for the many rows of a prompt chunk: blocks of input rows in the second-level cache, panels of
// weight rows in the first (products_panels.h). Results never depend on the split: a thread computes a cell as a whole.
#include "products_prompt.h"

#include "products_panels.h"

namespace strata::STRATA_ISA {
namespace {

// Which layouts of the input the formats read.
struct Layouts {
    bool by32 = false, by16 = false;
    void add(const WeightView& weight) {
        by32 |= formats[weight.format].sub == 32;
        by16 |= formats[weight.format].sub == 16;
    }
    size_t bytes(int64_t rows, int64_t cols) const {
        return (by32 ? records_bytes(rows, cols, 32) : 0) + (by16 ? records_bytes(rows, cols, 16) : 0);
    }
    uint8_t* place(Rows& in, uint8_t* at) const {
        if (by32) at = place_records(in.by32, at, in.rows, in.cols, 32);
        if (by16) at = place_records(in.by16, at, in.rows, in.cols, 16);
        return at;
    }
};

void quantise(Context context, const Rows& in) {
    if (!in.by32.data && !in.by16.data) return;
    constexpr int64_t per_chunk = 8;
    context.pool.parallel_for(static_cast<int>((in.rows + per_chunk - 1) / per_chunk), [&](int chunk, int) {
        const int64_t end = (chunk + 1) * per_chunk < in.rows ? (chunk + 1) * per_chunk : in.rows;
        for (int64_t row = chunk * per_chunk; row < end; ++row)
            quantise_records(in.x + row * in.cols, in.cols, in.by32.at(row), in.by16.at(row));
    });
}

// Weight rows per chunk: about eight chunks for every thread, in whole bands.
int64_t chunk_rows(int64_t total, int threads) {
    const int64_t wanted = total / (8 * threads) / band_rows * band_rows;
    return wanted < band_rows ? band_rows : wanted > 256 ? 256 : wanted;
}

int64_t chunks_of(int64_t rows, int64_t per_chunk) { return (rows + per_chunk - 1) / per_chunk; }

// Calls body(base, count, some) for the bands of weight rows [first, last) with each block of the input rows.
template <class Body>
void over_bands(int64_t first, int64_t last, const Some& all, int64_t block, Body body) {
    for (int64_t from = all.from; from < all.to; from += block)
        for (int64_t base = first; base < last; base += band_rows)
            body(base, last - base < band_rows ? last - base : band_rows,
                 Some{all.list, from, from + block < all.to ? from + block : all.to});
}

// `count` values of a band; a copy of a known size is two moves.
void put(float* to, const float* from, int64_t count) {
    if (count == band_rows) memcpy(to, from, 4 * band_rows);
    else memcpy(to, from, 4 * count);
}

// A matrix's rows [first, last): out[row, first ..].
void linear_chunk(const WeightView& weight, int64_t first, int64_t last, const Rows& in, float* out, uint8_t* scratch) {
    alignas(64) float y[most_inputs * band_rows];
    over_bands(first, last, {nullptr, 0, in.rows}, input_block(in), [&](int64_t base, int64_t count, const Some& some) {
        band(weight, base, last, in, some, band_ahead(weight, base + band_rows, last), scratch, y);
        for (int64_t i = some.from; i < some.to; ++i)
            put(out + i * weight.rows + base, y + (i - some.from) * band_rows, count);
    });
}

// Phase 1 of experts: hidden[pair, r] = silu(gate_r x) * (up_r x) for a range of rows of one expert.
void gate_up(const ExpertsJob& job, const Rows& in, int expert, int64_t first, int64_t last, float* hidden,
             uint8_t* scratch) {
    alignas(64) float gate[most_inputs * band_rows], up[most_inputs * band_rows];
    const Some pairs{job.row, job.begin[expert], job.begin[expert + 1]};
    over_bands(first, last, pairs, input_block(in), [&](int64_t base, int64_t count, const Some& some) {
        const WeightView &left = *job.gate[expert], &right = *job.up[expert];
        band(left, base, last, in, some, band_ahead(right, base, last), scratch, gate);
        band(right, base, last, in, some, band_ahead(left, base + band_rows, last), scratch, up);
        for (int64_t i = some.from; i < some.to; ++i) {
            float* y = hidden + i * job.width + base;
            const float *g = gate + (i - some.from) * band_rows, *u = up + (i - some.from) * band_rows;
            for (int64_t r = 0; r < count; ++r) y[r] = silu(g[r]) * u[r];
        }
    });
}

// Phase 2: a range of output rows over all experts, then their combination in rank order.
void down_combine(const ExpertsJob& job, const Rows& hidden, int64_t first, int64_t last, uint8_t* scratch) {
    alignas(64) float y[most_inputs * band_rows];
    const int64_t width = last - first;
    float* outputs = reinterpret_cast<float*>(scratch + panel_bytes(job.width));  // [pairs, width]
    for (int expert = 0; expert < job.count; ++expert) {
        const Some pairs{nullptr, job.begin[expert], job.begin[expert + 1]};
        over_bands(first, last, pairs, input_block(hidden), [&](int64_t base, int64_t count, const Some& some) {
            const bool next = base + band_rows >= last && expert + 1 < job.count;
            const WeightView& weight = *job.down[expert];
            const Ahead ahead = next ? band_ahead(*job.down[expert + 1], first, last)
                                     : band_ahead(weight, base + band_rows, last);
            band(weight, base, last, hidden, some, ahead, scratch, y);
            for (int64_t i = some.from; i < some.to; ++i)
                put(outputs + i * width + base - first, y + (i - some.from) * band_rows, count);
        });
    }
    finish_experts(job, outputs, first, width);
}

// Output rows per chunk of phase 2: the outputs of all pairs stay in the second-level cache until they are combined.
int64_t down_rows(const ExpertsJob& job, int threads) {
    const int64_t fit = (int64_t{1} << 20) / (4 * job.rows * job.top_k) / band_rows * band_rows;
    const int64_t even = chunk_rows(2 * job.hidden, threads), rows = fit < even ? fit : even;
    return rows < band_rows ? band_rows : rows;
}

}  // namespace

void prompt_linear(Context context, const LinearJob& job) {
    Layouts layouts;
    int64_t total = 0;
    for (int i = 0; i < job.count; ++i) {
        layouts.add(job.weights[i]);
        total += job.weights[i].rows;
    }
    const int threads = context.pool.threads();
    const int64_t per_chunk = chunk_rows(total, threads);
    Rows in{job.x, job.rows, job.cols, {}, {}};
    layouts.place(in, static_cast<uint8_t*>(context.shared.reserve(layouts.bytes(job.rows, job.cols) + 64)));
    for (int worker = 0; worker < threads; ++worker) context.workers[worker].reserve(panel_bytes(job.cols));
    quantise(context, in);
    int64_t chunks = 0;
    for (int i = 0; i < job.count; ++i) chunks += chunks_of(job.weights[i].rows, per_chunk);
    context.pool.parallel_for(static_cast<int>(chunks), [&](int chunk, int worker) {
        int i = 0;
        int64_t at = chunk;
        for (; at >= chunks_of(job.weights[i].rows, per_chunk); ++i) at -= chunks_of(job.weights[i].rows, per_chunk);
        const WeightView& weight = job.weights[i];
        const int64_t first = at * per_chunk, last = first + per_chunk < weight.rows ? first + per_chunk : weight.rows;
        uint8_t* scratch = static_cast<uint8_t*>(context.workers[worker].reserve(0));
        linear_chunk(weight, first, last, in, job.outputs[i], scratch);
    });
}

void prompt_experts(Context context, const ExpertsJob& job) {
    const int64_t pairs = job.begin[job.count];
    Layouts outer, inner;
    for (int e = 0; e < job.count; ++e) {
        outer.add(*job.gate[e]);
        outer.add(*job.up[e]);
        inner.add(*job.down[e]);
    }
    const int threads = context.pool.threads();
    const int64_t up_rows = chunk_rows(job.width * job.count, threads), out_rows = down_rows(job, threads);
    Rows in{job.x, job.rows, job.hidden, {}, {}};
    const size_t hidden_bytes = (static_cast<size_t>(pairs * job.width) * 4 + 63) / 64 * 64;
    uint8_t* at = static_cast<uint8_t*>(context.shared.reserve(hidden_bytes + outer.bytes(job.rows, job.hidden) +
                                                               inner.bytes(pairs, job.width) + 64));
    float* hidden = reinterpret_cast<float*>(at);
    Rows middle{hidden, pairs, job.width, {}, {}};
    inner.place(middle, outer.place(in, at + hidden_bytes));
    const size_t first_phase = panel_bytes(job.hidden);
    const size_t second_phase = panel_bytes(job.width) + static_cast<size_t>(pairs * out_rows) * 4;
    for (int worker = 0; worker < threads; ++worker)
        context.workers[worker].reserve(first_phase > second_phase ? first_phase : second_phase);
    auto scratch = [&](int worker) { return static_cast<uint8_t*>(context.workers[worker].reserve(0)); };

    quantise(context, in);
    const int64_t per_expert = chunks_of(job.width, up_rows);
    context.pool.parallel_for(static_cast<int>(per_expert * job.count), [&](int chunk, int worker) {
        const int64_t first = chunk % per_expert * up_rows;
        const int64_t last = first + up_rows < job.width ? first + up_rows : job.width;
        gate_up(job, in, static_cast<int>(chunk / per_expert), first, last, hidden, scratch(worker));
    });
    quantise(context, middle);
    context.pool.parallel_for(static_cast<int>(chunks_of(job.hidden, out_rows)), [&](int chunk, int worker) {
        const int64_t first = chunk * out_rows;
        const int64_t last = first + out_rows < job.hidden ? first + out_rows : job.hidden;
        down_combine(job, middle, first, last, scratch(worker));
    });
}

}  // namespace strata::STRATA_ISA
