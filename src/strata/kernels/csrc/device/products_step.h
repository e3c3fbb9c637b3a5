// One sub-block of a weight times one of x (docs/numerics.md 1, rules 2 to 4), and what the products share.
#pragma once

#include "quantised_rows.h"
#include "unpack.h"
#include "unpack_iq.h"
#include "unpack_k.h"
#include "unpack_tables.h"

namespace strata::STRATA_ISA {

// 32 sub-blocks of a row of weights, a lane each.
template <class F>
struct Step {
    static constexpr int values = 32 * F::sub, bytes = values / F::block * F::bytes;
    STRATA_INLINE int64_t row_bytes(int64_t cols) { return cols / F::block * F::bytes; }
};

// T rows of x: row t lies `offset[t]` bytes after `base`, and offset[0] is 0; quantised or as float32.
template <int T>
struct Inputs {
    const uint8_t* base;
    int offset[T];
};

template <int T, class Work>
STRATA_INLINE Inputs<T> inputs_of(const Work& work, int unit) {
    Inputs<T> in = {work.input(unit, 0), {}};
    STRATA_UNROLL
    for (int t = 1; t < T; ++t)  // rows that there are not: another one, whose results nobody takes
        in.offset[t] = static_cast<int>(work.input(unit, t < work.count(unit) ? t : 0) - in.base);
    return in;
}

// Rows of x of a unit, towards this processor: a group reads them piece by piece, and would wait for each.
template <int T, class Work>
STRATA_INLINE void touch_inputs(const Work& work, int unit, int64_t bytes) {
    if (unit >= work.end) return;
    STRATA_ROLL
    for (int t = 0; t < T && t < work.count(unit); ++t) {
        const uint8_t* const row = work.input(unit, t);
        for (int64_t i = 128 * lane(); i < bytes; i += 128 * 32) touch(row + i);
    }
}

// Up to so many quantised rows of x that all units share lie in shared memory; kernels/linear/launch.py makes room.
constexpr int most_staged_rows = 2;

// The rows of x of a group's units from when `work.wait()` has returned: in shared memory, where all units share few of
// them.
template <class F, int T, class Work>
struct InputRows {
    uint8_t* const at;
    static constexpr bool staged = T <= most_staged_rows && Work::shares_inputs;

    STRATA_METHOD void bring(const Work& work) const {
        const int64_t row = quantised_bytes<F::sub>(work.cols);
        if constexpr (staged) {
            const uint8_t* const from = work.input(0, 0);
            const int bytes = static_cast<int>(work.count(0) * row);
            constexpr int batch = 4;  // reads under way at once: each takes some 700 cycles
            STRATA_ROLL
            for (int i = 16 * thread_x(); i < bytes; i += 16 * batch * block_size()) {
                Words4 held[batch];
                STRATA_UNROLL
                for (int b = 0; b < batch; ++b)
                    if (i + 16 * b * block_size() < bytes) held[b] = load16(from + i + 16 * b * block_size());
                STRATA_UNROLL
                for (int b = 0; b < batch; ++b)
                    if (i + 16 * b * block_size() < bytes) *reinterpret_cast<Words4*>(at + i + 16 * b * block_size()) = held[b];
            }
            barrier();
        } else {
            touch_inputs<T>(work, work.begin, row);
        }
    }
    STRATA_METHOD Inputs<T> of(const Work& work, int unit) const {
        if constexpr (!staged) return inputs_of<T>(work, unit);
        Inputs<T> in = {at, {}};
        STRATA_UNROLL
        for (int t = 1; t < T; ++t) in.offset[t] = t < work.count(unit) ? t * static_cast<int>(quantised_bytes<F::sub>(work.cols)) : 0;
        return in;
    }
};

// `rows` consecutive rows of a matrix, the first of which begins at `data`.
struct Stream {
    const uint8_t* data;
    const uint8_t* scales;  // the matrix's plane of scales, where its format has one
    int64_t first;          // number of the first row in its matrix
    int rows;
};

// What the bytes on their way to a group begin with: the unit that they belong to, or -1 behind the last one, its rows,
// and where in their 16-byte lines the unit's bytes begin, of one matrix or two.
struct StageHead {
    int unit, rows, before[2];
};

// The bits of 1.5 * 2^23: added to an integer of less than 2^22, they give the bits of the sum as a float32.
constexpr int32_t magic_bits = 0x4b400000;

template <class F>
STRATA_INLINE float add(const Codes<F::sub>& c, const Quantised<F::sub>& x, float acc) {
    int32_t sum = has_halves<F> ? 0 : magic_bits - c.bias * x.m;
    STRATA_UNROLL
    for (int j = 0; j < F::sub / 4; ++j) sum = dot4(static_cast<int32_t>(c.w[j]), static_cast<int32_t>(x.q[j]), sum);
    if (has_halves<F>) sum = 2 * sum + (magic_bits + x.m);
    acc = fma(float_of_bits(static_cast<uint32_t>(sum)) - 12582912.0f, c.scale * x.d, acc);
    if (F::minima) acc = fma(x.least, c.minimum * x.d, acc);
    return acc;
}

template <class F>
STRATA_INLINE float add(const MixedCodes& c, const Quantised<32>& x, float acc) {
    int32_t sum = magic_bits, less = 0;
    STRATA_UNROLL
    for (int j = 0; j < 8; ++j) {
        sum = dot4(static_cast<int32_t>(c.w[j]), static_cast<int32_t>(x.q[j]), sum);
        less = dot4(static_cast<int32_t>(c.less[j]), static_cast<int32_t>(x.q[j]), less);
    }
    return fma(float_of_bits(static_cast<uint32_t>(sum - less)) - 12582912.0f, c.scale * x.d, acc);
}

// The codes of a lane's sub-block: number `s` of its block, `index` of a stream.
template <class F>
STRATA_INLINE Codes<F::sub> codes_of(const typename Layout<F>::Block& block, int s, const Stream& stream, int index, int subs,
                                     const Table& table) {
    Codes<F::sub> c;
    Unpack<F>::get(block, s, table, c);
    if constexpr (Layout<F>::apart) c.scale = 0.5f * e4m3_to_float(stream.scales[stream.first * subs + index]);
    return c;
}

// The same as `add` wants them.
template <class F>
STRATA_INLINE Codes<F::sub> factors_of(const typename Layout<F>::Block& block, int s, const Stream& stream, int index, int subs,
                                       const Table& table) {
    if constexpr (has_halves<F>) {
        Codes<F::sub> c;
        Unpack<F>::halves(block, s, table, c);
        return c;
    } else {
        return codes_of<F>(block, s, stream, index, subs, table);
    }
}

// Sums of N values over the lanes, N a power of two up to 32, in the order of the lane rule: lane l gets the sum of
// value l / (32 / N). While there are several, a level halves their number as well as the lanes of each. The order is
// the same when all lanes are turned: lane l of the rule in thread (l + n) % 32, for any n.
template <int N, int mask, int size>
STRATA_INLINE float trees(float (&v)[size]) {
    if constexpr (mask == 0) {
        return v[0];
    } else if constexpr (N == 1) {
        v[0] = v[0] + shuffle_xor(v[0], mask);
        return trees<1, mask / 2>(v);
    } else {
        const bool upper = (lane() & mask) != 0;
        STRATA_UNROLL
        for (int i = 0; i < N / 2; ++i) {
            const float kept = upper ? v[i + N / 2] : v[i], sent = upper ? v[i] : v[i + N / 2];
            v[i] = kept + shuffle_xor(sent, mask);
        }
        return trees<N / 2, mask / 2>(v);
    }
}

}  // namespace strata::STRATA_ISA
