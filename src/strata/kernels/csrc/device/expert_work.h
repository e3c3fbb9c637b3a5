// What the launches of expert_products.h do: gate and up, down, or one matrix of the experts of a step.
#pragma once

#include "expert_table.h"
#include "products_work.h"

namespace strata::STRATA_ISA {

// A unit as products_split.h keeps it: rows first, .. of the matrices of a job. It has `count` rows of x, those of its pairs.
struct alignas(16) UnitHead {
    int unit, rows, before[2];  // as StageHead
    int first, job, count, pair[job_pairs];  // job: of the block's
    float scale[2];  // of the products with the first matrix and the last
    int formats;     // of the expert's matrices
};

// A job of a block with what the table says of its expert.
struct alignas(16) KnownJob {
    Job job;
    int64_t data[3], scales[3];
    float scale[3];
    int formats;
};

static_assert(sizeof(UnitHead) == 48 && sizeof(KnownJob) == 80, "kernels/experts/launch.py counts with these");

// What launches over the experts of a step share. Units of a job: `per_job`. All of them wait for the placing before they
// let the next launch start: it may then read the jobs at once.
template <class F>
struct ExpertWork {
    const ExpertEntry* table;
    const Jobs* jobs;
    const uint8_t* x;
    int64_t top_k;  // 0: x has a row for each pair, otherwise one for top_k pairs
    int per_job, cols, lines;
    KnownJob* known;  // shared: the block's jobs, looked up once
    int begin, end, stride;   // of a group: its units are begin, begin + stride, .. below end
    int first_job, last_job;  // of the block

    STRATA_METHOD void start() {
        after_previous();
        start_next();
        divide();
    }
    STRATA_METHOD void wait() const {}

    // Blocks take equal runs of units, whose groups take them in turn. Units times blocks are below 2^31.
    STRATA_METHOD void divide() {
        const uint32_t units = static_cast<uint32_t>(jobs->count * per_job), block = static_cast<uint32_t>(block_x());
        const uint32_t blocks = static_cast<uint32_t>(grid_x());
        const int first = static_cast<int>(units * block / blocks);
        stride = block_size() / 32, begin = first + warp(), end = static_cast<int>(units * (block + 1) / blocks);
        first_job = number_of(first), last_job = end > first ? number_of(end - 1) : first_job - 1;
        for (int j = first_job + thread_x(); j <= last_job; j += block_size()) {
            const Job job = jobs->job[j];
            const ExpertEntry e = table[job.expert];
            known[j - first_job] = {job, {e.data[0], e.data[1], e.data[2]}, {e.scales[0], e.scales[1], e.scales[2]},
                                    {scale_of(e.scale_bits[0]), scale_of(e.scale_bits[1]), scale_of(e.scale_bits[2])},
                                    static_cast<int>(e.formats & 0xffffff)};
        }
        barrier();
    }

    STRATA_METHOD int number_of(int unit) const { return static_cast<int>(static_cast<uint32_t>(unit) / static_cast<uint32_t>(per_job)); }
    STRATA_METHOD const KnownJob& known_of(int unit) const { return known[number_of(unit) - first_job]; }

    // A unit of matrices of `rows` rows, the first and the last of which are of these kinds.
    STRATA_METHOD UnitHead unit_of(int unit, int64_t rows, int first_kind, int last_kind) const {
        const int number = number_of(unit), first = (unit - number * per_job) * lines, left = static_cast<int>(rows) - first;
        const KnownJob& k = known[number - first_job];
        return {unit, left < lines ? left : lines, {}, first, number - first_job, k.job.count, {k.job.pair[0], k.job.pair[1]},
                {k.scale[first_kind], k.scale[last_kind]}, k.formats};
    }
    STRATA_METHOD Stream stream(const UnitHead& head, int64_t rows, int kind) const {
        const KnownJob& k = known[head.job];
        return stream_of<F>(k.data[kind], k.scales[kind], rows, cols, head.first, lines);
    }

    STRATA_METHOD bool one_input() const { return false; }
    STRATA_METHOD int count(int unit) const { return known_of(unit).job.count; }
    STRATA_METHOD const uint8_t* inputs() const { return x; }
    STRATA_METHOD uint32_t offset_of(int pair) const {
        return static_cast<uint32_t>(top_k ? pair / static_cast<int>(top_k) : pair) * static_cast<uint32_t>(input_bytes<F>(cols));
    }
    STRATA_METHOD uint32_t offset(const UnitHead& head, int t) const { return offset_of(head.pair[t]); }
    STRATA_METHOD const uint8_t* input(int unit, int t) const { return x + offset_of(known_of(unit).job.pair[t]); }
};

// y [pairs, rows] of one matrix of every expert whose format is `format`.
template <class F>
struct OneMatrixWork : ExpertWork<F> {
    float* y;
    int64_t rows, kind, format;

    STRATA_METHOD UnitHead unit(int number) const {
        const int which = static_cast<int>(kind);
        UnitHead head = this->unit_of(number, rows, which, which);
        if ((head.formats >> 8 * which & 255) != format) head.rows = 0;
        return head;
    }
    STRATA_METHOD void streams(const UnitHead& head, Stream* streams) const {
        streams[0] = this->stream(head, rows, static_cast<int>(kind));
    }
    STRATA_METHOD void finish(const UnitHead& head, int r, int t, float sum, float) const {
        y[head.pair[t] * rows + head.first + r] = sum * head.scale[0];
    }

    // The same for plain floats (products_floats.h).
    STRATA_METHOD void streams(int number, Stream* streams) const {
        const UnitHead head = unit(number);
        this->streams(head, streams);
        if (head.rows == 0) streams[0].rows = 0;
    }
    STRATA_METHOD void finish(int number, int r, int t, float sum, float) const { finish(unit(number), r, t, sum, sum); }
};

// h [pairs, width] = silu(gate) * up; all experts have F for gate and up. A unit is the same rows of both.
// With one row of x a block keeps it.
template <class F, int T>
struct GateUpWork : ExpertWork<F> {
    float* h;
    int64_t width;
    uint8_t* kept;  // shared

    STRATA_METHOD UnitHead unit(int number) const { return this->unit_of(number, width, gate_matrix, up_matrix); }
    STRATA_METHOD void streams(const UnitHead& head, Stream* streams) const {
        streams[0] = this->stream(head, width, gate_matrix), streams[1] = this->stream(head, width, up_matrix);
    }
    STRATA_METHOD void finish(const UnitHead& head, int r, int t, float gate, float up) const {
        h[head.pair[t] * width + head.first + r] = silu(gate * head.scale[0]) * (up * head.scale[1]);
    }

    STRATA_METHOD const uint8_t* inputs() const { return T == 1 ? kept : this->x; }
    STRATA_METHOD uint32_t offset(const UnitHead& head, int t) const { return T == 1 ? 0 : this->offset_of(head.pair[t]); }

    STRATA_METHOD void wait() const {
        const int bytes = static_cast<int>(quantised_bytes<F::sub>(this->cols));
        if (T == 1) {
            for (int i = 16 * thread_x(); i < bytes; i += 16 * block_size())
                *reinterpret_cast<Words4*>(kept + i) = load16(this->x + i);
        } else if (this->begin < this->end) {
            const uint8_t* const row = this->input(this->begin, 0);
            for (int i = 128 * lane(); i < bytes; i += 128 * 32) touch(row + i);
        }
    }
};

// y [pairs, rows] of the down matrix of every expert whose format for it is `format`, from h [pairs, cols]. A block quantises
// the rows of h of its own jobs; bytes of weights are asked for before h is there.
template <class F, int T>
struct DownWork : OneMatrixWork<F> {
    const float* h;
    uint8_t* codes;  // shared

    STRATA_METHOD void start() {
        start_next();
        this->divide();
    }

    STRATA_METHOD const uint8_t* inputs() const { return codes; }
    STRATA_METHOD uint32_t offset(const UnitHead& head, int t) const {
        return static_cast<uint32_t>(head.job * T + t) * static_cast<uint32_t>(quantised_bytes<F::sub>(this->cols));
    }

    STRATA_METHOD void wait() const {
        after_previous();
        const int across = this->cols / 32, count = (this->last_job - this->first_job + 1) * T * across;
        STRATA_ROLL
        for (int first = warp() * 4; first < count; first += block_size() / 8) {
            const int index = first + lane() / 8, row = index / across, block = index - row * across, t = row % T;
            const Job& job = this->known[index < count ? row / T : 0].job;
            const bool is = index < count && t < job.count;
            float v[4] = {};
            if (is) {
                const Words4 four = load16(h + job.pair[t] * static_cast<int64_t>(this->cols) + block * 32 + lane() % 8 * 4);
                STRATA_UNROLL
                for (int i = 0; i < 4; ++i) v[i] = float_of_bits(four.w[i]);
            }
            float d;
            const uint32_t words = quantise_four(v, d);
            put_words<F::sub>(is ? codes + row * quantised_bytes<F::sub>(this->cols) : nullptr, block, words, d);
        }
    }
};

}  // namespace strata::STRATA_ISA
