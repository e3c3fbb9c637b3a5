// What a hyper-connection lets through, for a few rows: silu of the low rank, its product with the up matrix, whose
// weights are plain floats, and the mean of four streams under those gates; bits as kernels/joined.py. One unit for
// each STRATA_FORMAT.
//
// A block does 32 columns of all streams. A group of lanes brings the eight lines of the matrix that it reads itself to
// shared memory before its turn, and takes two of them at once: half a group has the 32 chains of the lane rule, two a
// lane.
#pragma once

#include "beside.h"
#include "products_plain.h"
#include "small.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int kMixThreads = 512, kMixStreams = 4, kMixColumns = 32, kMixLines = kMixStreams * kMixColumns;
constexpr int kMixPairs = kMixLines / (kMixThreads / 32) / 2;  // of lines of a group

// Bytes from a line to the next in shared memory: two lines that are read at once lie in different banks.
STRATA_INLINE int line_step(int bytes) { return (bytes + 63) / 128 * 128 + 64; }

template <class Raw>
struct alignas(2 * sizeof(Raw)) RawPair {
    Raw first, second;
};

// low [rows, rank], up [4 * hidden, rank], x [rows, 4 * hidden] -> y [rows, hidden], also quantised. T rows are done
// together. rank and hidden are multiples of 32. Grid: x groups of 32 columns. Dynamic shared memory: the block's
// lines, then float [T, rank].
template <class F, int T>
STRATA_INLINE void low_rank_mix(const float* low, const uint8_t* up, const float* x, float* y, const Beside& beside,
                                int rows, int rank, int64_t hidden, float divisor, float scale) {
    start_next();
    DYNAMIC_SHARED(uint8_t, tile);
    SHARED(float, parts, T * kMixLines);
    using Raw = typename F::Raw;
    const int bytes = rank * F::bytes, step = line_step(bytes), lines = 2 * kMixPairs * warp();
    const int64_t column = static_cast<int64_t>(block_x()) * kMixColumns;
    float* const inputs = reinterpret_cast<float*>(tile + kMixLines * step);
    const uint8_t* const from = up + ((lines / kMixColumns) * hidden + column + lines % kMixColumns) * bytes;
    KEEP_ROLLED
    for (int i = 0; i < 2 * kMixPairs; ++i)
        for (int at = 16 * lane(); at < bytes; at += 16 * 32) copy16(tile + (lines + i) * step + at, from + i * bytes + at);
    commit_copies();
    after_previous();

    // After the trees, the four lanes of a quarter of a half have a line's sums; one of them goes on with each row.
    const int half = lane() / 16, mine = lane() % 16, line = lines + lane() % 16 / 4 * 2 + half, own = lane() % 4;
    const uint8_t* const weights = tile + (lines + half) * step + 2 * mine * F::bytes;
    const int64_t place = line / kMixColumns * hidden + column + line % kMixColumns;
    KEEP_ROLLED
    for (int first = 0; first < rows; first += T) {
        const int count = least(T, rows - first);
        const float let = own < count ? x[(first + own) * kMixStreams * hidden + place] : 0.0f;
        for (int i = thread_x(); i < T * rank; i += kMixThreads)
            inputs[i] = i < count * rank ? silu(low[first * rank + i] / divisor) : 0.0f;
        if (first == 0) wait_for_copies<0>();
        barrier();
        float even[T][kMixPairs] = {}, odd[T][kMixPairs] = {};
        UNROLL_BY(2)
        for (int at = 0; at < rank; at += 32) {
            RawPair<float> in[T];
            UNROLL
            for (int t = 0; t < T; ++t) in[t] = *reinterpret_cast<const RawPair<float>*>(inputs + t * rank + at + 2 * mine);
            UNROLL
            for (int p = 0; p < kMixPairs; ++p) {
                const auto raw = *reinterpret_cast<const RawPair<Raw>*>(weights + 2 * p * step + at * F::bytes);
                const float left = F::value(raw.first), right = F::value(raw.second);
                UNROLL
                for (int t = 0; t < T; ++t) {
                    even[t][p] = fma(in[t].first, left, even[t][p]);
                    odd[t][p] = fma(in[t].second, right, odd[t][p]);
                }
            }
        }
        float sum = 0.0f;
        UNROLL
        for (int t = 0; t < T; ++t) {
            const float one = fold<kMixPairs, 8>(even[t]) + fold<kMixPairs, 8>(odd[t]);
            if (own == t) sum = one;
        }
        if (own < T) parts[own * kMixLines + line] = sigmoid(sum * scale) * let;
        barrier();
        if (warp() < count) {
            const float* const part = parts + warp() * kMixLines + lane();
            float total = part[0];
            UNROLL
            for (int s = 1; s < kMixStreams; ++s) total = total + part[s * kMixColumns];
            const float mean = total / static_cast<float>(kMixStreams);
            y[(first + warp()) * hidden + column + lane()] = mean;
            beside.put(mean, first + warp(), column + lane());
        }
    }
}

#define STRATA_LOW_RANK(T)                                                                                               \
    STRATA_KERNEL_BESIDE(kMixThreads, 1, low_rank_mix_##T,                                                               \
                         (const float* low, const uint8_t* up, const float* x, float* y, uint8_t* by32, uint8_t* by16,   \
                          int64_t rows, int64_t rank, int64_t hidden, float divisor, float scale)) {                     \
        low_rank_mix<STRATA_FORMAT, T>(low, up, x, y, {by32, by16, hidden}, static_cast<int>(rows), static_cast<int>(rank), \
                                       hidden, divisor, scale);                                                          \
    }

STRATA_LOW_RANK(1)
STRATA_LOW_RANK(4)

#undef STRATA_LOW_RANK

}  // namespace strata::STRATA_ISA
