// What the launches of expert_products.h do: gate and up, down, or one matrix of the experts of a step.
#pragma once

#include "expert_table.h"
#include "products_work.h"
#include "small.h"

namespace strata::STRATA_ISA {

// Rows first, .. of the matrices of a job: unit `number` of the launch. `job` counts from the block's first.
struct Unit {
    int number, job, first;
};

// What launches over the experts of a step share; T: rows of x of a job, at most. Units of a job: `per_job`. All of
// them wait for the placing before they let the next launch start: it may then read the jobs at once.
template <class F, int T>
struct ExpertWork {
    const Jobs* jobs;
    int pairs;
    const uint8_t* x;
    int64_t top_k;  // 0: x has a row for each pair, otherwise one for top_k pairs
    int per_job, cols, lines;
    Job* known;       // shared: the block's jobs
    uint8_t* codes;   // shared, where weights have codes: the rows of x of the block's jobs, T each
    int begin, end, stride;   // of a group: its units are begin, begin + stride, .. below end
    int first_job, last_job;  // of the block

    STRATA_METHOD void start() {
        share(pairs);
        after_previous();
        start_next();
        divide();
    }

    // Blocks take equal runs of units, whose groups take them in turn. Units times blocks are below 2^31. Mostly each
    // pair has a job of its own: a block's jobs are asked for as if it were so, before their number is there.
    STRATA_METHOD void divide() {
        Job first = {};
        if (first_job + thread_x() <= last_job) first = jobs->job[first_job + thread_x()];
        const int count = jobs->count;
        if (count != pairs) {
            share(count);
            if (first_job + thread_x() <= last_job) first = jobs->job[first_job + thread_x()];
        }
        if (first_job + thread_x() <= last_job) known[thread_x()] = first;
        for (int j = first_job + thread_x() + block_size(); j <= last_job; j += block_size()) known[j - first_job] = jobs->job[j];
        barrier();
    }
    STRATA_METHOD void share(int count) {
        const uint32_t units = static_cast<uint32_t>(count * per_job), block = static_cast<uint32_t>(block_x());
        const uint32_t blocks = static_cast<uint32_t>(grid_x());
        const int first = static_cast<int>(units * block / blocks);
        stride = block_size() / 32, begin = first + warp(), end = static_cast<int>(units * (block + 1) / blocks);
        first_job = number_of(first), last_job = end > first ? number_of(end - 1) : first_job - 1;
    }

    STRATA_METHOD int number_of(int unit) const { return static_cast<int>(static_cast<uint32_t>(unit) / static_cast<uint32_t>(per_job)); }
    STRATA_METHOD Unit unit_of(int number) const {
        const int job = number_of(number);
        return {number, job - first_job, (number - job * per_job) * lines};
    }
    STRATA_METHOD void advance(Unit& unit) const {
        const int rows = per_job * lines;
        unit.number += stride, unit.first += stride * lines;
        STRATA_ROLL
        while (unit.first >= rows) unit.first -= rows, ++unit.job;
    }

    STRATA_METHOD bool one_input() const { return false; }
    STRATA_METHOD uint32_t offset_of(int pair) const {
        return static_cast<uint32_t>(top_k ? pair / static_cast<int>(top_k) : pair) * static_cast<uint32_t>(input_bytes<F>(cols));
    }
    STRATA_METHOD uint32_t place_of_input(int job, int t) const {
        return static_cast<uint32_t>(job * T + t) * static_cast<uint32_t>(quantised_bytes<F::sub>(cols));
    }

    // Asks for the rows of x of the block's jobs, by all threads; before weights, behind which they would wait for
    // microseconds.
    STRATA_METHOD void ask_first() const {
        each_line([&](int job, int t, int line) {
            copy16(codes + place_of_input(job, t) + 16 * line, x + offset_of(known[job].pair[t]) + 16 * line);
        });
        commit_copies();
    }
    STRATA_METHOD void ask_later() const {}
    STRATA_METHOD void wait() const {}  // plain floats lie where they are

    // Until they are there for all threads after a barrier; weights were asked for `since` times.
    template <int since>
    STRATA_METHOD void wait_for_rows() const {
        lines_arrived<since>();
        if constexpr (is_mixed<F>) {
            barrier();
            each_line([&](int job, int t, int line) {  // a record's are 32 of first halves, 32 of second ones, 32 of scales
                if (line / 32 % 3 != 0) return;
                uint8_t* const place = codes + place_of_input(job, t) + 16 * line;
                const Words4 first = load16(place), second = load16(place + 512);
                *reinterpret_cast<Words4*>(place) = mixed_line(first, second, 0);
                *reinterpret_cast<Words4*>(place + 512) = mixed_line(first, second, 1);
            });
        }
    }

    // Lines of 16 bytes of the quantised rows of the block's jobs, shared out among all threads.
    template <class Do>
    STRATA_METHOD void each_line(const Do& f) const {
        const int lines16 = static_cast<int>(quantised_bytes<F::sub>(cols)) / 16, all = (last_job - first_job + 1) * T * lines16;
        for (int i = thread_x(); i < all; i += block_size()) {
            const int row = i / lines16, line = i - row * lines16;
            if (row % T < known[row / T].count) f(row / T, row % T, line);
        }
    }
};

// y [pairs, rows] of one matrix of every expert whose format is `format`.
template <class F, int T>
struct OneMatrixWork : ExpertWork<F, T> {
    float* y;
    int64_t rows, kind, format;

    STRATA_METHOD int rows_of(const Unit& unit) const { return least(static_cast<int>(rows) - unit.first, this->lines); }
    STRATA_METHOD bool has(const Unit& unit) const { return (this->known[unit.job].formats >> 8 * kind & 255) == format; }
    STRATA_METHOD int64_t data(int job, int) const { return this->known[job].data[kind]; }
    STRATA_METHOD Stream stream(const Unit& unit, int) const {
        const Job& k = this->known[unit.job];
        return stream_of<F>(k.data[kind], k.scales[kind], rows, this->cols, unit.first, this->lines);
    }
    STRATA_METHOD void finish(const Unit& unit, int r, int t, float sum) const {
        const Job& k = this->known[unit.job];
        y[k.pair[t] * rows + unit.first + r] = sum * k.scale[kind];
    }

    // The same for plain floats (products_floats.h).
    STRATA_METHOD void streams(int number, Stream* streams) const {
        const Unit unit = this->unit_of(number);
        streams[0] = stream(unit, 0);
        if (!has(unit)) streams[0].rows = 0;
    }
    STRATA_METHOD int count(int number) const { return this->known[this->unit_of(number).job].count; }
    STRATA_METHOD const uint8_t* input(int number, int t) const {
        return this->x + this->offset_of(this->known[this->unit_of(number).job].pair[t]);
    }
    STRATA_METHOD void finish(int number, int r, int t, float sum, float) const { finish(this->unit_of(number), r, t, sum); }
};

// h [pairs, width] = silu(gate) * up; all experts have F for gate and up. A unit is the same rows of both.
template <class F, int T>
struct GateUpWork : ExpertWork<F, T> {
    float* h;
    int64_t width;

    STRATA_METHOD int rows_of(const Unit& unit) const { return least(static_cast<int>(width) - unit.first, this->lines); }
    STRATA_METHOD bool has(const Unit&) const { return true; }
    STRATA_METHOD int64_t data(int job, int l) const { return this->known[job].data[l]; }
    STRATA_METHOD Stream stream(const Unit& unit, int l) const {
        const Job& k = this->known[unit.job];
        return stream_of<F>(k.data[l], k.scales[l], width, this->cols, unit.first, this->lines);
    }
};

// y [pairs, rows] of the down matrix of every expert whose format for it is `format`, from h [pairs, cols]. A block
// quantises the rows of h of its own jobs; bytes of weights are asked for before h is there.
template <class F, int T>
struct DownWork : OneMatrixWork<F, T> {
    const float* h;

    Words4 held;  // the first that this thread quantises

    STRATA_METHOD void start() {
        start_next();
        this->share(this->pairs);
        this->divide();
    }

    STRATA_METHOD void ask_first() const {}

    // h would wait behind all weights that were asked for before: some of them have to do.
    STRATA_METHOD void ask_later() {
        after_previous();
        held = four_of(part(warp() * 4));
    }

    template <int>
    STRATA_METHOD void wait_for_rows() const {
        const int count = blocks();
        STRATA_ROLL
        for (int first = warp() * 4; first < count; first += block_size() / 8) {
            const Part p = part(first);
            const Words4 four = first == warp() * 4 ? held : four_of(p);
            float v[4], d;
            STRATA_UNROLL
            for (int i = 0; i < 4; ++i) v[i] = float_of_bits(four.w[i]);
            const uint32_t words = quantise_four(v, d);
            put_words<F::sub, is_mixed<F>>(p.is ? this->codes + this->place_of_input(p.job, p.t) : nullptr, p.block, words, d);
        }
    }

    // 32 values of a row of h that eight lanes quantise; `is`: whether there are any.
    struct Part {
        int job, t, block;
        bool is;
    };
    STRATA_METHOD int blocks() const { return (this->last_job - this->first_job + 1) * T * (this->cols / 32); }
    STRATA_METHOD Part part(int first) const {
        const int across = this->cols / 32, index = first + lane() / 8, row = index / across;
        const bool inside = index < blocks();
        return {inside ? row / T : 0, row % T, index - row * across, inside && row % T < this->known[row / T].count};
    }
    STRATA_METHOD Words4 four_of(const Part& p) const {
        if (!p.is) return {};
        return load16(h + this->known[p.job].pair[p.t] * static_cast<int64_t>(this->cols) + p.block * 32 + lane() % 8 * 4);
    }
};

constexpr int expert_threads = 512;  // at most
constexpr int gate_up_parts = 16;    // lanes of a row of gate or up

template <class F>
STRATA_INLINE constexpr int table_bytes() {
    if constexpr (is_plain<F>) return 0;
    else return 4 * Unpack<F>::table_words;
}

// A block's shared memory: its jobs, `met` at most; the table of the format; the rows of x of its jobs,
// where weights have codes; a ring of each group.
template <class F, int T>
STRATA_INLINE ExpertWork<F, T> expert_work(const Jobs* jobs, int64_t pairs, const uint8_t* x, int64_t top_k, int64_t cols,
                                           int64_t lines, int64_t rows, int64_t met, unsigned char* shared) {
    const int per_job = static_cast<int>((rows + lines - 1) / lines);
    Job* const known = reinterpret_cast<Job*>(shared);
    uint8_t* const codes = reinterpret_cast<uint8_t*>(known + met) + table_bytes<F>();
    return {jobs, static_cast<int>(pairs), x, top_k, per_job, static_cast<int>(cols), static_cast<int>(lines), known, codes, 0, 0, 0, 0, 0};
}

}  // namespace strata::STRATA_ISA
