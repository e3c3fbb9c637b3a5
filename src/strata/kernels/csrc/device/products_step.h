// One sub-block of a weight times one of x (docs/numerics.md 1, rules 2 to 4), and what the products share.
#pragma once

#include "quantised_rows.h"
#include "unpack.h"
#include "unpack_iq.h"
#include "unpack_k.h"

namespace strata::STRATA_ISA {

// 32 sub-blocks of a row of weights, a lane each.
template <class F>
struct Step {
    static constexpr int values = 32 * F::sub, bytes = values / F::block * F::bytes;
    STRATA_INLINE int64_t row_bytes(int64_t cols) { return cols / F::block * F::bytes; }
};

// Up to T rows of x: row t lies `offset[t]` bytes after `base`, and offset[0] is 0; quantised or as float32.
template <int T>
struct Inputs {
    const uint8_t* base;
    int offset[T];
    int count;
};

// `rows` consecutive rows of a matrix, the first of which begins at `data`.
struct Stream {
    const uint8_t* data;
    const uint8_t* scales;  // the matrix's plane of scales, where its format has one
    int64_t first;          // number of the first row in its matrix
    int rows;
};

template <class F>
STRATA_INLINE float add(const Codes<F::sub>& c, const Quantised<F::sub>& x, float acc) {
    int32_t sum = -c.bias * x.m;
    STRATA_UNROLL
    for (int j = 0; j < F::sub / 4; ++j) sum = dot4(static_cast<int32_t>(c.w[j]), static_cast<int32_t>(x.q[j]), sum);
    acc = fma(static_cast<float>(sum), c.scale * x.d, acc);
    if (F::minima) acc = fma(-static_cast<float>(x.m), c.minimum * x.d, acc);
    return acc;
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

// Sums of N values over the lanes, N a power of two up to 32, in the order of the lane rule: lane l gets the sum of
// value l / (32 / N). While there are several, a level halves their number as well as the lanes of each. The order is the
// same when all lanes are turned: lane l of the rule in thread (l + n) % 32, for any n.
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
