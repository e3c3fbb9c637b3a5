// The products' loop over weights that are plain floats: a unit is two rows of weights with up to T rows of x, done by
// one group of 32 lanes. Lane l takes the values l, l + 32, ... of a row. Values are asked for some rounds of 32 ahead.
#pragma once

#include "products_plain.h"
#include "products_step.h"

namespace strata::STRATA_ISA {

// `rounds` rounds of 32 values of two rows of weights and of T rows of x.
template <class F, int T>
struct Batch {
    static constexpr int rounds = F::bytes == 1 || T > 2 ? 4 : T == 2 ? 8 : 16;
    typename F::Raw w[2][rounds];
    float x[T][rounds], scale[2][F::scaled ? rounds : 1];
};

template <class F, int T>
struct Floats {
    using Raw = typename F::Raw;
    const Stream& stream;
    const Inputs<T>& in;
    int cols;
    float acc[2][T] = {};

    // The values from column `first` on; `whole`: all lanes have values in all rounds.
    template <bool whole>
    STRATA_METHOD void load(Batch<F, T>& batch, int first) const {
        const Raw* const w = reinterpret_cast<const Raw*>(stream.data) + lane();
        const Raw* const second = stream.rows > 1 ? w + cols : w;  // whose results nobody takes otherwise
        STRATA_UNROLL
        for (int r = 0; r < Batch<F, T>::rounds; ++r) {
            const int column = first + 32 * r;
            if (!whole && column + lane() >= cols) continue;
            batch.w[0][r] = w[column], batch.w[1][r] = second[column];
            STRATA_UNROLL
            for (int t = 0; t < T; ++t)
                if (t == 0 || t < in.count)
                    batch.x[t][r] = reinterpret_cast<const float*>(in.base + in.offset[t])[column + lane()];
            if constexpr (F::scaled) {
                const int64_t across = (cols + 127) / 128, place = (column + lane()) / 128;
                const float* const scales = reinterpret_cast<const float*>(stream.scales);
                batch.scale[0][r] = scales[stream.first / 128 * across + place];
                batch.scale[1][r] = stream.rows > 1 ? scales[(stream.first + 1) / 128 * across + place] : 0.0f;
            }
        }
    }

    template <bool whole>
    STRATA_METHOD void add(const Batch<F, T>& batch, int first) {
        STRATA_UNROLL
        for (int r = 0; r < Batch<F, T>::rounds; ++r) {
            if (!whole && first + 32 * r + lane() >= cols) continue;
            float w[2];
            STRATA_UNROLL
            for (int row = 0; row < 2; ++row) {
                w[row] = F::value(batch.w[row][r]);
                if constexpr (F::scaled) w[row] = w[row] * batch.scale[row][r];
            }
            STRATA_UNROLL
            for (int t = 0; t < T; ++t)
                if (t == 0 || t < in.count) {
                    STRATA_UNROLL
                    for (int row = 0; row < 2; ++row) acc[row][t] = fma(batch.x[t][r], w[row], acc[row][t]);
                }
        }
    }

    // Inlined on the host too: GCC 12's interprocedural mod/ref analysis loses what the call adds up at -O1.
    [[gnu::always_inline]] STRATA_METHOD void run() {
        constexpr int step = 32 * Batch<F, T>::rounds;
        Batch<F, T> here, next;
        int first = 0;
        if (step <= cols) load<true>(here, 0);
        STRATA_ROLL
        for (; first + 3 * step <= cols; first += 2 * step) {
            load<true>(next, first + step);
            add<true>(here, first);
            load<true>(here, first + 2 * step);
            add<true>(next, first + step);
        }
        if (first + step <= cols) {
            const bool more = first + 2 * step <= cols;
            if (more) load<true>(next, first + step);
            add<true>(here, first);
            if (more) add<true>(next, first + step);
            first += more ? 2 * step : step;
        }
        if (first < cols) {
            load<false>(here, first);
            add<false>(here, first);
        }
    }
};

template <class F, int T, class Work>
STRATA_INLINE void run_floats(Work& work) {
    work.start();
    if (work.begin < work.end) {  // towards the second-level cache, while x may not be there yet
        Stream stream;
        work.streams(work.begin, &stream);
        for (int i = 128 * lane(); i < stream.rows * work.cols * F::bytes; i += 128 * 32) prefetch(stream.data + i);
    }
    work.wait();
    STRATA_ROLL
    for (int unit = work.begin; unit < work.end; unit += work.stride) {
        Stream stream;
        Inputs<T> in;
        work.streams(unit, &stream);
        if (stream.rows == 0) continue;
        work.inputs(unit, in);
        Floats<F, T> floats = {stream, in, work.cols};
        floats.run();
        float sums[2 * T];
        STRATA_UNROLL
        for (int i = 0; i < 2 * T; ++i) sums[i] = floats.acc[i % 2][i / 2];
        constexpr int each = 32 / (2 * T);
        const float sum = trees<2 * T, 16>(sums);
        work.finish(unit, in.count, 0, lane() / each % 2, lane() / each / 2, lane() % each == 0, sum);
    }
}

}  // namespace strata::STRATA_ISA
