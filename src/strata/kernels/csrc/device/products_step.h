// What one step of a product is, for each kind of format: 32 sub-blocks, a lane each, or some rounds of 32 floats.
#pragma once

#include "products_plain.h"
#include "quantised_rows.h"
#include "unpack.h"
#include "unpack_iq.h"
#include "unpack_k.h"

namespace strata::STRATA_ISA {

// A row of a weight: its bytes, and its entries in the plane of scales where the format has one.
struct Line {
    const uint8_t* data;
    const uint8_t* scales;
};

// Up to T rows of x: row t lies `offset[t]` bytes after `base`, as records or as float32.
template <int T>
struct Inputs {
    const uint8_t* base;
    int64_t offset[T];
    int count;
};

// A line's bytes of one step in shared memory: from byte `at` on, after an address aligned to 16.
struct Staged {
    const uint8_t* bytes;
    uint32_t at;
};

template <class F, bool plain = is_plain<F>>
struct Step;

template <class F>
struct Step<F, false> {
    static constexpr int values = 32 * F::sub, bytes = values / F::block * F::bytes;
    using Unpacked = Codes<F::sub>;

    STRATA_INLINE int64_t row_bytes(int64_t cols) { return cols / F::block * F::bytes; }
    STRATA_INLINE const uint8_t* scales_of(const uint8_t* plane, int64_t row, int64_t cols) {
        return Layout<F>::apart ? plane + row * (cols / F::sub) : nullptr;
    }

    // Sub-block `index` of the row, this lane's in the step.
    STRATA_INLINE void unpack(const Staged& staged, const Line& line, int64_t index, const uint32_t* table, Unpacked& c) {
        const uint32_t place = lane();
        typename Layout<F>::Block block = {reinterpret_cast<const uint32_t*>(staged.bytes),
                                           staged.at + place / Layout<F>::subs * F::bytes};
        Unpack<F>::get(block, static_cast<int>(place % Layout<F>::subs), table, c);
        if constexpr (Layout<F>::apart) c.scale = 0.5f * e4m3_to_float(line.scales[index]);
    }

    template <int R, int T>
    STRATA_INLINE void run(const Staged (&staged)[R], const Line (&line)[R], const Inputs<T>& in, int64_t step,
                           int64_t cols, const uint32_t* table, float (&acc)[R][T]) {
        const int64_t index = step * 32 + lane();
        if (index >= cols / F::sub) return;
        Unpacked c[R];
        STRATA_UNROLL
        for (int r = 0; r < R; ++r) unpack(staged[r], line[r], index, table, c[r]);
        const uint8_t* record = in.base + step * Record<F::sub>::bytes;
        STRATA_UNROLL
        for (int t = 0; t < T; ++t)
            if (t == 0 || t < in.count) {
                const Quantised x = input(record + in.offset[t], lane());
                STRATA_UNROLL
                for (int r = 0; r < R; ++r) acc[r][t] = add(c[r], x, acc[r][t]);
            }
    }

    // A sub-block of x.
    struct Quantised {
        uint32_t q[F::sub / 4];
        float d;
        int32_t m;
    };

    STRATA_INLINE Quantised input(const uint8_t* record, int place) {
        Quantised x;
        STRATA_UNROLL
        for (int h = 0; h < F::sub / 16; ++h) {
            const Words4 half = load16(record + 512 * h + 16 * place);
            STRATA_UNROLL
            for (int j = 0; j < 4; ++j) x.q[4 * h + j] = half.w[j];
        }
        x.d = *reinterpret_cast<const float*>(record + Record<F::sub>::d + 4 * place);
        x.m = *reinterpret_cast<const int32_t*>(record + Record<F::sub>::m + 4 * place);
        return x;
    }

    // docs/numerics.md, rules 2 to 4, for one sub-block.
    STRATA_INLINE float add(const Unpacked& c, const Quantised& x, float acc) {
        int32_t sum = -c.bias * x.m;
        STRATA_UNROLL
        for (int j = 0; j < F::sub / 4; ++j)
            sum = dot4(static_cast<int32_t>(c.w[j]), static_cast<int32_t>(x.q[j]), sum);
        acc = fma(static_cast<float>(sum), c.scale * x.d, acc);
        if (F::minima) acc = fma(-static_cast<float>(x.m), c.minimum * x.d, acc);
        return acc;
    }
};

template <class F>
struct Step<F, true> {
    static constexpr int rounds = F::bytes == 4 ? 8 : 16, values = 32 * rounds, bytes = values * F::bytes;

    STRATA_INLINE int64_t row_bytes(int64_t cols) { return cols * F::bytes; }
    STRATA_INLINE const uint8_t* scales_of(const uint8_t* plane, int64_t row, int64_t cols) {
        return F::scaled ? plane + row / 128 * ((cols + 127) / 128) * 4 : nullptr;
    }

    template <int R, int T>
    STRATA_INLINE void run(const Staged (&staged)[R], const Line (&line)[R], const Inputs<T>& in, int64_t step,
                           int64_t cols, const uint32_t*, float (&acc)[R][T]) {
        STRATA_UNROLL
        for (int round = 0; round < rounds; ++round) {
            const int place = 32 * round + lane();
            const int64_t column = step * values + place;
            if (column >= cols) continue;
            float w[R];
            STRATA_UNROLL
            for (int r = 0; r < R; ++r) {
                w[r] = F::value(staged[r].bytes, staged[r].at + place * F::bytes);
                if (F::scaled) w[r] = w[r] * reinterpret_cast<const float*>(line[r].scales)[column / 128];
            }
            STRATA_UNROLL
            for (int t = 0; t < T; ++t)
                if (t == 0 || t < in.count) {
                    const float x = reinterpret_cast<const float*>(in.base + in.offset[t])[column];
                    STRATA_UNROLL
                    for (int r = 0; r < R; ++r) acc[r][t] = fma(x, w[r], acc[r][t]);
                }
        }
    }
};

template <class F, bool plain = is_plain<F>>
struct Grid {
    static constexpr int words = 0;
    STRATA_INLINE void fill(uint32_t*, int, int) {}
};
template <class F>
struct Grid<F, false> {
    static constexpr int words = Unpack<F>::table_words;
    STRATA_INLINE void fill(uint32_t* table, int thread, int threads) { Unpack<F>::fill(table, thread, threads); }
};

// Bytes from one row of x to the next, in records or as float32.
template <class F>
STRATA_INLINE int64_t input_bytes(int64_t cols) {
    if constexpr (is_plain<F>) return cols * 4;
    else return records_of<F::sub>(cols) * Record<F::sub>::bytes;
}

}  // namespace strata::STRATA_ISA
