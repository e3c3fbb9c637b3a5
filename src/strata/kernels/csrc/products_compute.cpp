// linear, experts and embed over the pool's threads. Results never depend on the split into chunks: a chunk
// owns whole output rows, and a row is computed by one thread from beginning to end.
#include <atomic>
#include <thread>
#include <type_traits>

#include "products_prompt.h"
#include "products_rows.h"

namespace strata::STRATA_ISA {
namespace {

// Which layouts of the input the formats read.
struct Needs {
    bool by32 = false, by16 = false;
    void add(const WeightView& weight) {
        by32 |= formats[weight.format].sub == 32;
        by16 |= formats[weight.format].sub == 16;
    }
    size_t bytes(int64_t rows, int64_t cols) const {
        return (by32 ? grouped_bytes(rows, cols, 32) : 0) + (by16 ? grouped_bytes(rows, cols, 16) : 0);
    }
    uint8_t* place(Input& in, uint8_t* at) const {
        if (by32) at = place_grouped(in.by32, at, in.rows, in.cols, 32);
        if (by16) at = place_grouped(in.by16, at, in.rows, in.cols, 16);
        return at;
    }
};

// Rows that one thread quantises: waking the others costs as much.
constexpr int64_t rows_alone = 7;

void quantise(Context context, const Needs& needs, const Input& in) {
    if (!needs.by32 && !needs.by16) return;
    const int64_t per_chunk = in.rows <= rows_alone ? in.rows : (in.rows + 63) / 64;
    const int chunks = static_cast<int>((in.rows + per_chunk - 1) / per_chunk);
    context.pool.parallel_for(chunks, [&](int chunk, int) {
        const int64_t end = (chunk + 1) * per_chunk < in.rows ? (chunk + 1) * per_chunk : in.rows;
        for (int64_t row = chunk * per_chunk; row < end; ++row) quantise_row(in, row);
    });
}

// Lets threads begin a job while the caller still quantises its few rows: until it has they ask for their first
// weights.
class Meanwhile {
public:
    // Calls fn(chunk, worker) for every chunk, after `first(chunk)`, where the chunk's weights begin, was asked for.
    template <class First, class F>
    static void run(Context context, const Needs& needs, const Input& in, int chunks, First first, F fn) {
        if (in.rows > rows_alone || !(needs.by32 || needs.by16)) {
            quantise(context, needs, in);
            context.pool.parallel_for(chunks, fn);
            return;
        }
        Meanwhile quantised;
        const auto body = [&](int chunk, int worker) {
            quantised.wait(first(chunk));
            fn(chunk, worker);
        };
        using Body = std::remove_const_t<decltype(body)>;
        const auto call = [](void* of, int chunk, int worker) { (*static_cast<const Body*>(of))(chunk, worker); };
        context.pool.begin(chunks, call, const_cast<Body*>(&body));
        for (int64_t row = 0; row < in.rows; ++row) quantise_row(in, row);
        quantised.done_.store(true, std::memory_order_release);
        context.pool.finish();
    }

private:
    // What comes from memory in the time of a few rows.
    static constexpr int64_t asked_bytes = 12 * 1024;
    static constexpr int patience = 4096;

    void wait(const uint8_t* weights) const {
        for (int64_t looks = 0; !done_.load(std::memory_order_acquire); ++looks) {
            if (64 * looks < asked_bytes) __builtin_prefetch(weights + 64 * looks, 0, 2);
            else if (looks % patience == 0) std::this_thread::yield();
        }
    }

    alignas(128) std::atomic<bool> done_{false};
};

// Weight rows per chunk: about eight chunks for every thread.
int64_t chunk_rows(int64_t total, int threads) {
    constexpr int64_t least = 16;
    const int64_t wanted = total / (8 * threads) / least * least;
    return wanted < least ? least : wanted > 256 ? 256 : wanted;
}

struct Piece {
    int weight;  // job.count: there is no such piece
    int64_t first;
};

// The weights of a linear job in pieces of `rows` rows. A thread probably goes on with the piece `threads` after its
// own.
struct Pieces {
    const LinearJob& job;
    int64_t rows;
    int64_t of(int weight) const { return (job.weights[weight].rows + rows - 1) / rows; }
    int count() const {
        int64_t sum = 0;
        for (int i = 0; i < job.count; ++i) sum += of(i);
        return static_cast<int>(sum);
    }
    Piece at(int64_t index) const {
        int i = 0;
        for (; i < job.count && index >= of(i); ++i) index -= of(i);
        return {i, index * rows};
    }
    const uint8_t* data(const Piece& piece) const {
        return piece.weight < job.count ? row_data(job.weights[piece.weight], piece.first) : nullptr;
    }
};

// A prompt's panels pay later for matrices of no more columns: 12 rows times 768 x 256 in Q4_K take 64 us so, 38 here.
constexpr int64_t short_columns = 256;

void linear(Context context, const LinearJob& job) {
    if (job.rows > (job.cols > short_columns ? few_rows : 2 * few_rows)) return prompt_linear(context, job);
    Needs needs;
    int64_t total = 0;
    for (int i = 0; i < job.count; ++i) {
        needs.add(job.weights[i]);
        total += job.weights[i].rows;
    }
    const int64_t per_chunk = chunk_rows(total, context.pool.threads());
    Input in{job.x, job.rows, job.cols, {}, {}};
    needs.place(in, static_cast<uint8_t*>(context.shared.reserve(needs.bytes(job.rows, job.cols) + 64)));
    for (int worker = 0; worker < context.pool.threads(); ++worker)
        context.workers[worker].reserve(product_scratch(job.cols));
    quantise(context, needs, in);
    const Pieces pieces{job, per_chunk};
    const int threads = context.pool.threads();
    context.pool.parallel_for(pieces.count(), [&](int chunk, int worker) {
        const Piece piece = pieces.at(chunk), after = pieces.at(chunk + threads);
        const WeightView& weight = job.weights[piece.weight];
        const int64_t last = piece.first + per_chunk < weight.rows ? piece.first + per_chunk : weight.rows;
        float* out = job.outputs[piece.weight] + piece.first;
        product_rows(weight, piece.first, last, in, nullptr, job.rows, out, weight.rows,
                     context.workers[worker].reserve(0), pieces.data(after));
    });
}

// Bytes of weights that a chunk of a call of experts has at least, as far as no thread is left without one: some 4 us
// of work, beside which what a chunk takes of its own is little.
constexpr int64_t least_chunk_bytes = 24 * 1024;

// `total` rows in as many chunks for every thread, eight of them at most; they differ by four rows at most. Rows of a
// number for all would leave some threads a chunk more than others, a sixth of the time of one expert.
struct EvenChunks {
    int64_t total;
    int count;
    EvenChunks(int64_t rows, int64_t bytes, int threads) : total(rows) {
        const int64_t each = bytes / (least_chunk_bytes * threads);
        count = threads * static_cast<int>(each < 1 ? 1 : each > 8 ? 8 : each);
    }
    int64_t first(int64_t chunk) const { return chunk >= count ? total : total / 4 * chunk / count * 4; }
    int64_t most() const { return total / 4 / count * 4 + 8; }
};

int64_t weight_bytes(const WeightView& weight) {
    const Format& format = formats[weight.format];
    return weight.rows * (weight.cols / format.block * format.bytes);
}

// Phase 1 of experts: hidden[pair, r] = silu(gate_r x) * (up_r x) for a range of rows of one expert.
void gate_up(const ExpertsJob& job, const Input& in, int expert, int64_t first, int64_t last, float* hidden,
             uint8_t* scratch, const uint8_t* next) {
    const int64_t begin = job.begin[expert], n = job.begin[expert + 1] - begin;
    const int32_t* rows = job.row + begin;
    float* up = reinterpret_cast<float*>(scratch + product_scratch(job.hidden));
    float* gate = hidden + begin * job.width + first;
    const uint8_t* after_gate = row_data(*job.up[expert], first);
    product_rows(*job.gate[expert], first, last, in, rows, n, gate, job.width, scratch, after_gate);
    product_rows(*job.up[expert], first, last, in, rows, n, up, last - first, scratch, next);
    for (int64_t i = 0; i < n; ++i) {
        float* to = gate + i * job.width;
        const float* from = up + i * (last - first);
        for (int64_t r = 0; r < last - first; ++r) to[r] = silu(to[r]) * from[r];
    }
}

// Phase 2: a range of output rows over all experts, then their combination in rank order.
void down_combine(const ExpertsJob& job, const Input& hidden, int64_t first, int64_t last, uint8_t* scratch,
                  const uint8_t* next) {
    const int64_t count = last - first;
    float* outputs = reinterpret_cast<float*>(scratch + product_scratch(job.width));  // [pairs, count]
    for (int expert = 0; expert < job.count; ++expert) {
        const int64_t begin = job.begin[expert], n = job.begin[expert + 1] - begin;
        Input part = hidden;
        part.x += begin * hidden.cols;
        if (part.by32.q) {
            part.by32.q += begin * part.by32.groups * 512;
            part.by32.d += begin * part.by32.groups * 16;
            part.by32.m += begin * part.by32.groups * 16;
        }
        if (part.by16.q) {
            part.by16.q += begin * part.by16.groups * 256;
            part.by16.d += begin * part.by16.groups * 16;
            part.by16.m += begin * part.by16.groups * 16;
        }
        product_rows(*job.down[expert], first, last, part, nullptr, n, outputs + begin * count, count, scratch,
                     expert + 1 < job.count ? row_data(*job.down[expert + 1], first) : next);
    }
    finish_experts(job, outputs, first, count);
}

// Phase 1 in chunks of rows of all experts one after the other; a chunk may have the end of one and the beginning of
// the next. `down`: the chunks of phase 2.
void all_gate_up(Context context, const ExpertsJob& job, const Needs& needs, const Input& in, const EvenChunks& up,
                 const EvenChunks& down, float* hidden) {
    const int64_t rows = up.total, threads = context.pool.threads();
    const auto gate_at = [&](int64_t row) { return row_data(*job.gate[row / job.width], row % job.width); };
    const auto first_of = [&](int chunk) { return gate_at(up.first(chunk)); };
    Meanwhile::run(context, needs, in, up.count, first_of, [&](int chunk, int worker) {
        uint8_t* const scratch = static_cast<uint8_t*>(context.workers[worker].reserve(0));
        const int64_t first = up.first(chunk), end = up.first(chunk + 1), after = up.first(chunk + threads);
        // What this thread reads after these rows; at its end, of its first rows in phase 2.
        const uint8_t* const next = after < rows ? gate_at(after) : row_data(*job.down[0], down.first(worker));
        for (int64_t row = first, last; row < end; row = last) {
            const int64_t expert = row / job.width, begin = expert * job.width;
            last = begin + job.width < end ? begin + job.width : end;
            gate_up(job, in, static_cast<int>(expert), row - begin, last - begin, hidden, scratch,
                    last < end ? gate_at(last) : next);
        }
    });
}

void all_down(Context context, const ExpertsJob& job, const Needs& needs, const Input& middle, const EvenChunks& down) {
    const int64_t rows = down.total, threads = context.pool.threads();
    const auto first_of = [&](int chunk) { return row_data(*job.down[0], down.first(chunk)); };
    Meanwhile::run(context, needs, middle, down.count, first_of, [&](int chunk, int worker) {
        const int64_t first = down.first(chunk), last = down.first(chunk + 1), after = down.first(chunk + threads);
        if (first == last) return;
        down_combine(job, middle, first, last, static_cast<uint8_t*>(context.workers[worker].reserve(0)),
                     after < rows ? row_data(*job.down[0], after) : nullptr);
    });
}

void experts(Context context, const ExpertsJob& job) {
    const int64_t pairs = job.begin[job.count];
    if (pairs > few_rows * job.count) return prompt_experts(context, job);
    Needs outer, inner;
    for (int e = 0; e < job.count; ++e) {
        outer.add(*job.gate[e]);
        outer.add(*job.up[e]);
        inner.add(*job.down[e]);
    }
    const int threads = context.pool.threads();
    int64_t up_bytes = 0, down_bytes = 0;
    for (int e = 0; e < job.count; ++e) {
        up_bytes += weight_bytes(*job.gate[e]) + weight_bytes(*job.up[e]);
        down_bytes += weight_bytes(*job.down[e]);
    }
    const EvenChunks up(job.width * job.count, up_bytes, threads), down(job.hidden, down_bytes, threads);
    Input in{job.x, job.rows, job.hidden, {}, {}};
    const size_t hidden_bytes = (static_cast<size_t>(pairs * job.width) * 4 + 63) / 64 * 64;
    uint8_t* at = static_cast<uint8_t*>(context.shared.reserve(hidden_bytes + outer.bytes(job.rows, job.hidden) +
                                                               inner.bytes(pairs, job.width) + 64));
    float* hidden = reinterpret_cast<float*>(at);
    Input middle{hidden, pairs, job.width, {}, {}};
    inner.place(middle, outer.place(in, at + hidden_bytes));
    int64_t most = 0;
    for (int e = 0; e < job.count; ++e)
        most = job.begin[e + 1] - job.begin[e] > most ? job.begin[e + 1] - job.begin[e] : most;
    const size_t first_phase = product_scratch(job.hidden) + static_cast<size_t>(most * up.most()) * 4;
    const size_t second_phase = product_scratch(job.width) + static_cast<size_t>(pairs * down.most()) * 4;
    for (int worker = 0; worker < threads; ++worker)
        context.workers[worker].reserve(first_phase > second_phase ? first_phase : second_phase);

    all_gate_up(context, job, outer, in, up, down, hidden);
    all_down(context, job, inner, middle, down);
}

void embed(Context context, const WeightView& weight, const int64_t* ids, int64_t count, float* y) {
    const int64_t per_chunk = (count + 63) / 64 < 8 ? 8 : (count + 63) / 64;
    context.pool.parallel_for(static_cast<int>((count + per_chunk - 1) / per_chunk), [&](int chunk, int) {
        const int64_t end = (chunk + 1) * per_chunk < count ? (chunk + 1) * per_chunk : count;
        for (int64_t i = chunk * per_chunk; i < end; ++i) {
            float* row = y + i * weight.cols;
            formats[weight.format].floats(weight, ids[i], row);
            if (weight.scale != 1.0f)
                for (int64_t c = 0; c < weight.cols; ++c) row[c] *= weight.scale;
        }
    });
}

}  // namespace

constinit const ProductKernels product_kernels = {linear, experts, embed, formats};

}  // namespace strata::STRATA_ISA
