// The kernel of products_few.h for one to four input rows, whose sums stay in registers beside those of both halves of
// the lanes.
#pragma once

#include <type_traits>

#include "products_dot.h"
#include "products_few.h"
#include "products_group.h"
#include "vector_parts.h"

#if STRATA_VECTOR

namespace strata::STRATA_ISA {

// Bytes between what is multiplied and what is asked for, into the second-level cache: the hardware's prefetchers stop
// at the end of each 4 KiB page. Experts of Q4_K on two threads run at 30 GB/s so; at 28 with 4096, 18 without.
constexpr int64_t few_ahead = 6144;

// Asks for the bytes of weight rows `few_ahead` bytes before their use, and at the end for those of job.next: without
// them each range of rows begins with a wait for the memory.
class Ahead {
public:
    // Over weight rows first .. last - 1 of the job.
    Ahead(const FewRows& job, int64_t row_bytes, int64_t first, int64_t last, int64_t distance = few_ahead)
        : at_(reinterpret_cast<uintptr_t>(job.weight.data + first * row_bytes) + ahead_of(job, row_bytes, distance)),
          end_(reinterpret_cast<uintptr_t>(job.weight.data + last * row_bytes)),
          next_(last == job.last && job.next ? reinterpret_cast<uintptr_t>(job.next) : end_) {
        if (at_ >= end_) go_on();
    }
    // Beside the use of as many bytes.
    __attribute__((always_inline)) void ask(int64_t bytes) {
        for (int64_t line = 0; line < bytes; line += 64)
            __builtin_prefetch(reinterpret_cast<const void*>(at_ + static_cast<uintptr_t>(line)), 0, 2);
        at_ += static_cast<uintptr_t>(bytes);
        if (at_ >= end_) go_on();
    }

private:
    // What follows a shorter job is probably as short: what lies further ahead nobody here is going to use.
    static uintptr_t ahead_of(const FewRows& job, int64_t row_bytes, int64_t distance) {
        const int64_t bytes = (job.last - job.first) * row_bytes;
        return static_cast<uintptr_t>(bytes < distance ? bytes : distance);
    }
    void go_on() {
        at_ = next_ + (at_ - end_);
        end_ = UINTPTR_MAX;
    }
    uintptr_t at_, end_, next_;
};

// What a group of activations brings beside its values, made once per call for all its weight rows: with four input
// rows each operation less per group counts.
template <class F>
struct Beside {
    // Codes have an offset that the sums must lose (`signed_codes` lose 128 by themselves).
    static constexpr bool offset = !F::minima && !(F::offset == 128 && signed_codes);
    // The sums of the activations: as floats for the minima; else times minus the offset, where the products' sums
    // begin.
    std::conditional_t<F::minima, float, int32_t> sums[16];
    float d[16];

    // [four rows or the rest of them][groups][rows], so that the kernel finds its rows at constant distances.
    static void fill(const FewRows& job, Beside* to) {
        for (int64_t from = 0; from < job.n; from += 4)
            for (int64_t g = 0; g < job.groups; ++g)
                for (int64_t n = from; n < job.n && n < from + 4; ++n) to++->take(job, n, g);
    }

    // Of group g of input row n the first 1 / times, so many times.
    template <int times = 1>
    void take(const FewRows& job, int64_t n, int64_t g) {
        const int64_t cell = (job.index ? job.index[n] : n) * job.groups + g;
        const Ints16 ones = load_ints_again<times>(job.m + 16 * cell);
        if constexpr (F::minima) store(sums, floats_of(ones));
        else if constexpr (offset) store(sums, ones * -F::offset);
        store(d, load_floats_again<times>(job.d + 16 * cell));
    }
};

template <class F, int N>
struct FewKernel {
    static constexpr int64_t values = 16 * F::sub, blocks = values / F::block, bytes = blocks * F::bytes;
    static constexpr bool wide = F::offset == 128;

    // Where the input rows are in their activations.
    struct Cells {
        const int8_t* q[N];
        const Beside<F>* beside;
        Cells(const FewRows& job, int64_t from)
            : beside(static_cast<const Beside<F>*>(job.scratch) + from * job.groups) {
            for (int n = 0; n < N; ++n)
                q[n] = job.q + (job.index ? job.index[from + n] : from + n) * job.groups * values;
        }
        __attribute__((always_inline)) void next() {
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) q[n] += values;
            beside += N;
        }
        const int8_t* codes(int n) const { return q[n]; }
        const Beside<F>& with(int n) const { return beside[n]; }
    };

    // One group into one half of the lanes of each input row. The first 1 / times of the activations' group meets as
    // many parts of the codes.
    template <int times, class Of>
    __attribute__((always_inline)) static inline void group(const uint8_t* b, const Of& cells, Floats16* acc) {
        const StepGroup<F> group(b);
        Ints16 sum[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            if constexpr (!Beside<F>::offset) sum[n] = no_ints();
            else sum[n] = load_ints_again<times>(cells.with(n).sums);
        }
        group.codes([&](int step, Bytes64 codes) {
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) sum[n] = dot4_again<wide, times>(sum[n], codes, cells.codes(n) + 64 * step);
        });
        const Floats16 scale = group.scales();
        Floats16 minimum;
        if constexpr (F::minima) minimum = group.minima();
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            const Beside<F>& beside = cells.with(n);
            const Floats16 d = load_floats_again<times>(beside.d);
            acc[n] = fused(floats_of(sum[n]), scale * d, acc[n]);
            if constexpr (F::minima) {
                const Floats16 ones = load_floats_again<times>(beside.sums);
                acc[n] = minus_fused(ones, minimum * d, acc[n]);
            }
        }
    }

    // The half of the lanes that the next group belongs to, and the one after it.
    struct Lanes {
        Floats16 now[N], then[N];
        __attribute__((always_inline)) void swap() {
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) {
                const Floats16 done = now[n];
                now[n] = then[n];
                then[n] = done;
            }
        }
    };

    __attribute__((always_inline)) static inline void finish(const FewRows& job, int64_t row, int64_t from,
                                                             const Lanes& lanes) {
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
            // Two calls: choosing between the registers first costs a tenth of the kernel's rate.
            float y;
            if (job.groups % 2)
                y = lane_tree(lanes.then[n], lanes.now[n]);
            else
                y = lane_tree(lanes.now[n], lanes.then[n]);
            float& out = job.out[(from + n) * job.stride + row - job.first];
            out = job.weight.scale == 1.0f ? y : y * job.weight.scale;
        }
    }

    // Weight rows first .. last - 1 of the job with input rows from .. from + N - 1.
    static void rows(const FewRows& job, int64_t first, int64_t last, int64_t from) {
        const int64_t count = job.weight.cols / F::block, whole = count / blocks, rest = count % blocks * F::bytes;
        const Cells start(job, from);
        Ahead ahead(job, count * F::bytes, first, last);
        const uint8_t* b = job.weight.data + first * count * F::bytes;
        int64_t row = first;
        if constexpr (blocks % 4 == 0)
            if (4 * rest == bytes) b = joined<4>(job, row, last, from, b, whole, start, ahead);
        if (2 * rest == bytes) b = joined<2>(job, row, last, from, b, whole, start, ahead);
        for (; row < last; ++row, b += rest) {
            Lanes lanes;
            Cells cells = start;
            uint8_t filled[bytes];
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) lanes.now[n] = lanes.then[n] = no_floats();
            for (int64_t g = 0; g < job.groups; ++g) {
                const uint8_t* at = b;
                if (g == whole) {  // blocks of zeros fill it: finite scales, which meet activations that are 0
                    ahead.ask(rest);
                    memset(filled, 0, bytes);
                    memcpy(filled, b, static_cast<size_t>(rest));
                    at = filled;
                } else {
                    ahead.ask(bytes);
                    b += bytes;
                }
                group<1>(at, cells, lanes.now);
                lanes.swap();
                cells.next();
            }
            finish(job, row, from, lanes);
        }
    }

    // Weight rows from `row` on as long as there are R -> where the next one lies.
    template <int R>
    __attribute__((always_inline)) static inline const uint8_t* joined(const FewRows& job, int64_t& row, int64_t last,
                                                                       int64_t from, const uint8_t* b, int64_t whole,
                                                                       const Cells& start, Ahead& ahead) {
        const int64_t together = (whole * R + 1) * bytes;
        if (whole)
            for (; row + R <= last; row += R, b += together) joined_rows<R>(job, row, from, b, whole, start, ahead);
        else
            for (; row + R <= last; row += R, b += together) short_rows<R>(job, row, from, b, start, ahead);
        return b;
    }

    // R rows that make one group: they lie side by side, and one tree ends all of them.
    template <int R>
    __attribute__((always_inline)) static inline void short_rows(const FewRows& job, int64_t row, int64_t from,
                                                                 const uint8_t* b, const Cells& cells, Ahead& ahead) {
        ahead.ask(bytes);
        Floats16 lanes[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) lanes[n] = no_floats();
        group<R>(b, cells, lanes);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
            float y[R];
            part_trees(lanes[n], y);
            float* out = job.out + (from + n) * job.stride + row - job.first;
            for (int r = 0; r < R; ++r) out[r] = job.weight.scale == 1.0f ? y[r] : y[r] * job.weight.scale;
        }
    }

    // Two rows whose last groups are half full, or four with a quarter: the parts make one group, of which each row
    // takes its lanes.
    template <int R>
    __attribute__((always_inline)) static inline void joined_rows(const FewRows& job, int64_t row, int64_t from,
                                                                  const uint8_t* b, int64_t whole, const Cells& start,
                                                                  Ahead& ahead) {
        constexpr int64_t part = bytes / R;
        const int64_t row_bytes = whole * bytes + part;
        uint8_t last[bytes];  // written long before it is read: a load of what was just stored in pieces would wait
        for (int r = 0; r < R; ++r) memcpy(last + r * part, b + r * row_bytes + whole * bytes, part);
        Lanes of[R];
        Cells cells = start;
        for (int r = 0; r < R; ++r, b += part) {
            Lanes lanes;
            cells = start;
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) lanes.now[n] = lanes.then[n] = no_floats();
            for (int64_t g = 0; g < whole; ++g, b += bytes) {
                ahead.ask(bytes);
                group<1>(b, cells, lanes.now);
                lanes.swap();
                cells.next();
            }
            of[r] = lanes;
        }
        ahead.ask(bytes);
        Floats16 joined[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
            Floats16 each[R];
            for (int r = 0; r < R; ++r) each[r] = of[r].now[n];
            joined[n] = join_first(each);
        }
        group<R>(last, cells, joined);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
            Floats16 each[R];
            for (int r = 0; r < R; ++r) each[r] = of[r].now[n];
            part_first(joined[n], each);
            for (int r = 0; r < R; ++r) of[r].now[n] = each[r];
        }
        for (int r = 0; r < R; ++r) {
            of[r].swap();
            finish(job, row + r, from, of[r]);
        }
    }
};

}  // namespace strata::STRATA_ISA

#endif
