// The products' loop over weights that are plain floats. A unit is some rows of a matrix, done by one group of 32
// lanes: lane l takes the values l, l + 32, ... of each row. Bytes of weights come to shared memory as tiles: whole
// rows, or pieces of one long row; while one tile is worked on, the next is on its way. Rows of x that all units share
// are brought to shared memory as well, if there is room.
#pragma once

#include "arrivals.h"
#include "products_plain.h"
#include "products_step.h"

namespace strata::STRATA_ISA {

// Shared memory of a group; kernels/linear/launch.py computes the same sizes.
constexpr int float_tile_bytes = 10 << 10;    // of a piece of a single row, at most
#ifndef STRATA_INPUT_BYTES
#define STRATA_INPUT_BYTES (160 << 10)  // less where a block has less shared memory (kernels/shared_memory.py)
#endif
constexpr int shared_input_bytes = STRATA_INPUT_BYTES;  // of rows of x, at most

template <class F>
struct FloatTiles {
    int lines, cols;

    STRATA_METHOD int piece_cols() const {  // of a tile's rows
        constexpr int most = float_tile_bytes / F::bytes;
        return lines > 1 || cols < most ? cols : most;
    }
    STRATA_METHOD int pieces() const { return (cols + piece_cols() - 1) / piece_cols(); }
    STRATA_METHOD int bytes() const { return (lines * piece_cols() * F::bytes + 30) / 16 * 16; }
    STRATA_METHOD int group_bytes() const { return 32 + 2 * bytes(); }
};

// Brings the tiles of a group's units, one after the other.
template <class F, class Work>
struct FloatBringing {
    const Work& work;
    const FloatTiles<F> shape;
    uint8_t* const at;
    int unit, piece = 0, slot = 0;
    Stream stream = {};

    STRATA_METHOD uint64_t* arrival(int of) const { return reinterpret_cast<uint64_t*>(at + 16 * of); }
    STRATA_METHOD uint8_t* tile(int of) const { return at + 32 + of * shape.bytes(); }

    STRATA_METHOD void next() {
        if (piece == 0) {
            for (; unit < work.end; unit += work.stride) {
                work.streams(unit, &stream);
                if (stream.rows > 0) break;
            }
        }
        if (unit < work.end) {
            const int first = piece * shape.piece_cols(), left = shape.cols - first;
            const int cols = stream.rows > 1 || left < shape.piece_cols() ? left : shape.piece_cols();
            const uint8_t* const from = stream.data + first * F::bytes;
            const int count = (line_offset(from) + stream.rows * cols * F::bytes + 15) & ~15;
            bring<32>(arrival(slot), tile(slot), from - line_offset(from), count);
            if (++piece == shape.pieces()) piece = 0, unit += work.stride;
        }
        asked();
        slot ^= 1;
    }
};

// Sums of R rows of weights with T rows of x.
template <class F, int R, int T>
struct FloatSums {
    using Raw = typename F::Raw;
    static constexpr int rounds = R * T > 16 ? 1 : T > 2 ? 2 : R > 1 ? 4 / T : 10 / T;  // of 32 columns, asked for together
    float acc[R][T] = {};

    template <int N>
    struct Batch {
        Raw w[R][N];
        float x[T][N];
    };

    // `count` columns, the first of which is number `first` of the row; w[r] and x[t] begin there, with lane 0. While a
    // batch is added, the next one is on its way.
    [[gnu::always_inline]] STRATA_METHOD void add(const Raw* const (&w)[R], const float* const (&x)[T], const float* const (&scales)[R],
                                                  int first, int count) {
        constexpr int batch = 32 * rounds;
        const int full = count / batch;
        int column = lane();
        Batch<rounds> here, next;
        if (full > 0) load(here, w, x, column);
        STRATA_ROLL
        for (int i = 0; i + 1 < full; i += 2) {
            load(next, w, x, column + batch);
            sum(here, scales, first + column);
            if (i + 2 < full) load(here, w, x, column + 2 * batch);
            sum(next, scales, first + column + batch);
            column += 2 * batch;
        }
        if (full % 2 != 0) {
            sum(here, scales, first + column);
            column += batch;
        }
        STRATA_ROLL
        for (; column < count; column += 32) {
            Batch<1> one;
            load(one, w, x, column);
            sum(one, scales, first + column);
        }
    }

    template <int N>
    [[gnu::always_inline]] STRATA_METHOD void load(Batch<N>& batch, const Raw* const (&w)[R], const float* const (&x)[T], int column) const {
        STRATA_UNROLL
        for (int n = 0; n < N; ++n) {
            STRATA_UNROLL
            for (int r = 0; r < R; ++r) batch.w[r][n] = w[r][column + 32 * n];
            STRATA_UNROLL
            for (int t = 0; t < T; ++t) batch.x[t][n] = x[t][column + 32 * n];
        }
    }

    template <int N>
    [[gnu::always_inline]] STRATA_METHOD void sum(const Batch<N>& batch, const float* const (&scales)[R], int column) {
        STRATA_UNROLL
        for (int n = 0; n < N; ++n) {
            STRATA_UNROLL
            for (int r = 0; r < R; ++r) {
                float value = F::value(batch.w[r][n]);
                if constexpr (F::scaled) value = value * scales[r][(column + 32 * n) / 128];
                STRATA_UNROLL
                for (int t = 0; t < T; ++t) acc[r][t] = fma(batch.x[t][n], value, acc[r][t]);
            }
        }
    }

    // Sums of all lanes to where they belong; `valid` rows from row `row` of the unit on.
    template <class Work>
    STRATA_METHOD void finish(const Work& work, int unit, int row, int valid, int count) {
        float sums[R * T];
        STRATA_UNROLL
        for (int i = 0; i < R * T; ++i) sums[i] = acc[i % R][i / R];
        constexpr int each = 32 / (R * T);
        const float sum = trees<R * T, 16>(sums);
        const int r = lane() / each % R, t = lane() / each / R;
        if (lane() % each == 0 && r < valid && t < count) work.finish(unit, row + r, t, sum, sum);
    }
};

// Where row `row` of a stream has its scales of 128 columns each.
template <class F>
STRATA_INLINE const float* scales_of(const Stream& stream, int row, int cols) {
    if constexpr (!F::scaled) return nullptr;
    return reinterpret_cast<const float*>(stream.scales) + (stream.first + row) / 128 * ((cols + 127) / 128);
}

// The whole rows of a tile, R at a time.
template <class F, int R, int T, class Work>
STRATA_INLINE void add_rows(const Work& work, int unit, const Stream& stream, const uint8_t* tile, const float* const (&x)[T], int count) {
    const typename F::Raw* const data = reinterpret_cast<const typename F::Raw*>(tile + line_offset(stream.data));
    STRATA_ROLL
    for (int row = 0; row < stream.rows; row += R) {
        FloatSums<F, R, T> sums;
        const typename F::Raw* w[R];
        const float* scales[R];
        STRATA_UNROLL
        for (int r = 0; r < R; ++r) {
            const int here = row + r < stream.rows ? row + r : stream.rows - 1;  // whose results nobody takes otherwise
            w[r] = data + here * work.cols;
            scales[r] = scales_of<F>(stream, here, work.cols);
        }
        sums.add(w, x, scales, 0, work.cols);
        sums.finish(work, unit, row, stream.rows - row, count);
    }
}

// The rows of x of all units on their way to shared memory, in pieces that every block asks for in another order: else
// all processors would want the same lines at the same time.
template <class Work>
struct InputPieces {
    const uint8_t* from;
    int bytes, size;  // of all; of a piece

    STRATA_METHOD explicit InputPieces(const Work& work) : from(work.input(0, 0)) {
        const int before = line_offset(from);
        from -= before;
        bytes = (before + work.count(0) * work.cols * 4 + 15) & ~15;
        size = (bytes / 16 + 15) / 16 * 16;
        if (size < 1024) size = 1024;
    }
    STRATA_METHOD int count() const { return (bytes + size - 1) / size; }

    // Called by the lanes of one group.
    STRATA_METHOD void bring_to(uint8_t* to, uint64_t* arrival) const {
        if (lane() >= count()) return;
        const int at = (lane() + block_x()) % count() * size, left = bytes - at;
        bring<1>(arrival, to + at, from + at, left < size ? left : size);
    }
};

// `staged`: all units have the rows of x of unit 0, one after the other, and they are brought to shared memory.
template <class F, int T, bool staged, class Work>
STRATA_INLINE void run_float_tiles(Work& work, unsigned char* shared) {
    const FloatTiles<F> shape = {work.lines, work.cols};
    FloatBringing<F, Work> bringing = {work, shape, shared + warp() * shape.group_bytes(), work.begin};
    uint8_t* const inputs = shared + block_size() / 32 * shape.group_bytes();
    uint64_t* const inputs_there = reinterpret_cast<uint64_t*>(inputs);
    if (lane() < 2) expect(bringing.arrival(lane()), 1);
    const InputPieces<Work> pieces(work);
    if (staged && thread_x() == 0) expect(inputs_there, pieces.count());
    barrier();
    bringing.next();
    bringing.next();
    work.wait();
    if (staged && warp() == 0) pieces.bring_to(inputs + 16, inputs_there);
    if (staged) arrived_for_all(inputs_there, 0);
    int slot = 0, turn = 0;
    STRATA_ROLL
    for (int unit = work.begin; unit < work.end; unit += work.stride) {
        Stream stream;
        work.streams(unit, &stream);
        if (stream.rows == 0) continue;
        const int count = work.count(unit);
        const float* x[T];
        STRATA_UNROLL
        for (int t = 0; t < T; ++t) {
            const int here = t < count ? t : 0;
            if constexpr (staged) x[t] = reinterpret_cast<const float*>(inputs + 16 + line_offset(work.input(0, 0))) + here * work.cols;
            else x[t] = reinterpret_cast<const float*>(work.input(unit, here));
        }
        if (work.lines > 1) {
            arrived<1>(bringing.arrival(slot), turn);
            add_rows<F, 4, T>(work, unit, stream, bringing.tile(slot), x, count);
            sync_warp();
            bringing.next();
            turn += slot, slot ^= 1;
        } else {
            FloatSums<F, 1, T> sums;
            const float* const scales[1] = {scales_of<F>(stream, 0, work.cols)};
            STRATA_ROLL
            for (int first = 0; first < work.cols; first += shape.piece_cols()) {
                arrived<1>(bringing.arrival(slot), turn);
                const int left = work.cols - first;
                const typename F::Raw* const w[1] = {reinterpret_cast<const typename F::Raw*>(
                    bringing.tile(slot) + line_offset(stream.data + first * F::bytes))};
                sums.add(w, x, scales, first, left < shape.piece_cols() ? left : shape.piece_cols());
                STRATA_UNROLL
                for (int t = 0; t < T; ++t) x[t] += shape.piece_cols();
                sync_warp();
                bringing.next();
                turn += slot, slot ^= 1;
            }
            sums.finish(work, unit, 0, 1, count);
        }
    }
}

template <class F, int T, class Work>
STRATA_INLINE void run_floats(Work& work, unsigned char* shared) {
    work.start();
    // More rows of x are taken together only where they fit (kernels/linear/launch.py, bucket).
    if (work.one_input() && (T > 1 || work.cols * 4 <= shared_input_bytes)) run_float_tiles<F, T, true>(work, shared);
    else run_float_tiles<F, T, false>(work, shared);
}

}  // namespace strata::STRATA_ISA
