// Products with several rows of x on matrix units. A block has tiles of 16 rows of weights, one after the other; a
// tile's bytes come to shared memory in steps of 32 sub-blocks. Each of the block's eight groups takes four lanes of
// the lane rule (docs/numerics.md 1.4): group r the lanes r, r + 8, r + 16 and r + 24, whose sums every thread keeps
// for four results in each 8 rows of x. Groups add theirs as the tree does, then leave the tile's sums in shared
// memory.
#pragma once

#include "fragments.h"
#include "matrix.h"
#include "products_work.h"

namespace strata::STRATA_ISA {

constexpr int tile_threads = 256, tile_rows = 16;

// Shared memory: the table, `depth` steps of weights, sums of two tiles, x; kernels/linear/tiles.py computes the same.
template <class F, int N>
struct TileShared {
    static constexpr int turns = 4;                 // sub-blocks of a step for each group
    static constexpr int step = Step<F>::bytes;     // of a row
    static constexpr int pitch = ((step + 15 + 4 + 15) / 16 | 1) * 16;  // of rows: eight of them meet no bank twice
    static constexpr int stage = tile_rows * pitch, depth = step > 640 ? 3 : 4;
    static constexpr int sums = 8 * tile_rows * 8 * N * 4;              // of a tile, from every group
    static constexpr int record = 8 * F::sub + 64;  // of 8 rows of x, a sub-block: codes as lanes take them, then (d, m)
    static constexpr int table = 4 * Fragment<F>::table_words, before_x = table + depth * stage + 2 * sums;
};

// v of lane j of the four that a lane belongs to.
STRATA_INLINE float of_four(float v, int j) {
#if defined(__CUDA_ARCH__)
    return __shfl_sync(0xffffffffu, v, j, 4);
#else
    return shuffle(v, (lane() & ~3) | j);
#endif
}

// Brings the steps of a block's tiles: each group two rows of every tile.
template <class F, int N, class Work>
struct TileBringing {
    using S = TileShared<F, N>;
    const Work& work;
    uint8_t* const ring;
    const int row_bytes, steps, end;
    int unit, step = 0, slot = 0;
    const uint8_t* source[2] = {};

    STRATA_METHOD void next() {
        if (unit < end) {
            if (step == 0) {
                Stream stream;
                work.streams(unit, &stream);
                STRATA_UNROLL
                for (int i = 0; i < 2; ++i) {  // rows that there are not: the last one, whose results nobody takes
                    const int row = 2 * warp() + i;
                    source[i] = stream.data + (row < stream.rows ? row : stream.rows - 1) * row_bytes;
                }
            }
            const int left = row_bytes - step * S::step, count = left < S::step ? left : S::step;
            STRATA_UNROLL
            for (int i = 0; i < 2; ++i) {
                const int before = line_offset(source[i]), bytes = before + count - 16 * lane();
                const uint8_t* const from = settled(source[i] - before + 16 * lane());
                const SharedPlace to = settled(shared_place(ring + slot * S::stage + (2 * warp() + i) * S::pitch + 16 * lane()));
                STRATA_UNROLL
                for (int k = 0; k < S::step + 15; k += 512)
                    if (k < bytes) copy16_to(to + k, from + k);
                source[i] += S::step;
            }
            if (++step == steps) step = 0, ++unit;
        }
        commit_copies();
        slot = slot + 1 == S::depth ? 0 : slot + 1;
    }
};

// x as lanes take it: sub-block by sub-block and 8 rows by 8 rows, lane 4 t + c its codes of row t; then for each row d
// and what an integer sum begins with.
template <class F, int N, class Work>
STRATA_INLINE void stage_inputs(const Work& work, uint8_t* to, int subs) {
    using S = TileShared<F, N>;
    const int count = work.count(0);
    for (int i = thread_x(); i < subs * count; i += block_size()) {
        const int t = i / subs, b = i % subs;
        const Quantised<F::sub> x = input<F::sub>(work.input(0, t) + place_of<F::sub>(b));
        uint8_t* const record = to + (b * N + t / 8) * S::record;
        uint32_t* const codes = reinterpret_cast<uint32_t*>(record) + t % 8 * (F::sub / 4);
        STRATA_UNROLL
        for (int j = 0; j < F::sub / 4; ++j) codes[Fragment<F>::contiguous ? j : j % 4 * 2 + j / 4] = x.q[j];
        const uint32_t rest = static_cast<uint32_t>(-Fragment<F>::bias * x.m);
        *reinterpret_cast<Words2*>(record + 8 * F::sub + 8 * (t % 8)) = {{bits_of_float(x.d), rest}};
    }
}

// Where the blocks of a step begin for a thread, in one of its rows: at the step's first byte, or two bytes further for
// blocks that do not begin at a multiple of 4 from there.
template <class F>
struct RowPlace {
    using Block = typename Layout<F>::Block;
    static constexpr bool both = F::bytes % 4 != 0 && Layout<F>::subs > 1;
    int words[2], exact[2];

    STRATA_METHOD explicit RowPlace(int at) {
        STRATA_UNROLL
        for (int i = 0; i < (both ? 2 : 1); ++i) {
            exact[i] = Layout<F>::align % 4 ? (at + 2 * i) & 3 : 0;
            words[i] = keep(at + 2 * i - exact[i]);
        }
    }
    // The block `offset` bytes on.
    STRATA_METHOD Block at(const uint8_t* shared, int offset) const {
        const bool second = both && offset % 4 != 0;
        const uint8_t* const from = shared + (second ? words[1] - 2 : words[0]) + offset;
        return {reinterpret_cast<const uint32_t*>(from), static_cast<uint32_t>(second ? exact[1] : exact[0])};
    }
};

// What a thread adds up of a tile: rows lane() / 4 and 8 more, columns 2 (lane() % 4) and one more.
template <class F, int N>
struct TileSums {
    using S = TileShared<F, N>;
    static constexpr int subs = Layout<F>::subs;  // of a block: 1 or 8
    const int group;                              // the same in all lanes of a group
    const typename Fragment<F>::Lane mine;
    const int x_codes, x_scales;  // of the group's first sub-block
    float acc[S::turns][N][4] = {};

    STRATA_METHOD explicit TileSums(int g)
        : group(g),
          mine(g, lane() % 4),
          x_codes(keep(g * N * S::record + F::sub / 4 * lane())),
          x_scales(keep(g * N * S::record + 8 * F::sub + 16 * (lane() % 4))) {}

    // The group's sub-block of turn j of a step lies so many bytes after the step's beginning, or its own for short
    // blocks.
    STRATA_INLINE int offset_of(int j) { return (subs == 1 ? 8 * j : 8 * j / subs) * F::bytes; }

    // places: the thread's rows; x: of the step; `left`: sub-blocks.
    STRATA_METHOD void add_step(const uint8_t* shared, const RowPlace<F> (&places)[2], const uint8_t* x, int left,
                                const uint32_t* table) {
        const int c = lane() % 4;
        float scale[2];  // of turn c
        STRATA_UNROLL
        for (int h = 0; h < 2; ++h) scale[h] = Fragment<F>::scale(places[h].at(shared, offset_of(c)), group);
        if (left >= 8 * S::turns) {  // without a question between turns, so that they overlap
            STRATA_UNROLL
            for (int j = 0; j < S::turns; ++j)
                add_turn(shared, places, x + 8 * j * N * S::record, j, scale, table);
            return;
        }
        STRATA_UNROLL
        for (int j = 0; j < S::turns; ++j)
            if (8 * j + group < left) add_turn(shared, places, x + 8 * j * N * S::record, j, scale, table);
    }

    // x: of the turn's first group.
    STRATA_METHOD void add_turn(const uint8_t* shared, const RowPlace<F> (&places)[2], const uint8_t* x, int j,
                                const float (&scales)[2], const uint32_t* table) {
        uint32_t w[2][2];
        float scale[2];
        STRATA_UNROLL
        for (int h = 0; h < 2; ++h) {
            Fragment<F>::codes(mine, places[h].at(shared, offset_of(j)), table, w[h]);
            scale[h] = of_four(scales[h], j);
        }
        STRATA_UNROLL
        for (int n = 0; n < N; ++n) {
            const uint8_t* const record = x + n * S::record;
            const Words4 rest = load16(record + x_scales);
            constexpr bool biased = Fragment<F>::bias != 0;
            const int32_t begin[2] = {biased ? static_cast<int32_t>(rest.w[1]) : 0,
                                      biased ? static_cast<int32_t>(rest.w[3]) : 0};
            int32_t sum[4];
            const Words2 b = load8(record + x_codes);
            mma_s8_on(sum, {w[0][0], w[1][0], w[0][1], w[1][1]}, b.w[0], b.w[1], begin);
            STRATA_UNROLL
            for (int i = 0; i < 4; ++i) {
                const float d = float_of_bits(rest.w[i % 2 * 2]);
                acc[j][n][i] = fma(static_cast<float>(sum[i]), scale[i / 2] * d, acc[j][n][i]);
            }
        }
    }
    // The first two levels of the tree, to sums [group][row][row of x].
    STRATA_METHOD void leave(float* sums) const {
        float* const to = sums + (group * tile_rows + lane() / 4) * 8 * N + lane() % 4 * 2;
        STRATA_UNROLL
        for (int n = 0; n < N; ++n) {
            STRATA_UNROLL
            for (int i = 0; i < 4; ++i)
                to[i / 2 * 8 * 8 * N + 8 * n + i % 2] = (acc[0][n][i] + acc[2][n][i]) + (acc[1][n][i] + acc[3][n][i]);
        }
    }
};

// The other three levels: a thread for each result.
template <int N, class Work>
STRATA_INLINE void finish_tile(const Work& work, int unit, const float* sums) {
    Stream stream;
    work.streams(unit, &stream);
    for (int i = thread_x(); i < tile_rows * 8 * N; i += block_size()) {
        const int row = i % tile_rows, t = i / tile_rows;
        float v[8];
        STRATA_UNROLL
        for (int r = 0; r < 8; ++r) v[r] = sums[(r * tile_rows + row) * 8 * N + t];
        const float sum = ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
        if (row < stream.rows && t < work.count(unit)) work.finish(unit, row, t, sum, sum);
    }
}

// Work as LinearWork, with units of tile_rows rows.
template <class F, int N, class Work>
STRATA_INLINE void run_tiles(Work& work, unsigned char* shared) {
    using S = TileShared<F, N>;
    const int subs = work.cols / F::sub, row_bytes = work.cols / F::block * F::bytes, steps = (subs + 31) / 32;
    uint32_t* const table = reinterpret_cast<uint32_t*>(shared);
    uint8_t *const ring = shared + S::table, *const x = shared + S::before_x;
    float* const sums = reinterpret_cast<float*>(ring + S::depth * S::stage);
    work.start();
    const int group = shuffle(warp(), 0), first = work.begin - group;
    TileBringing<F, N, Work> bringing = {work, ring, row_bytes, steps, work.end, first};
    STRATA_UNROLL
    for (int i = 0; i + 1 < S::depth; ++i) bringing.next();
    Fragment<F>::fill(table, thread_x(), block_size());
    work.wait();
    stage_inputs<F, N>(work, x, subs);
    int slot = 0, tile = 0;
    STRATA_ROLL
    for (int unit = first; unit < work.end; ++unit, ++tile) {
        TileSums<F, N> of(group);
        Stream stream;
        work.streams(unit, &stream);
        int place[2];
        STRATA_UNROLL
        for (int h = 0; h < 2; ++h) {
            const int row = lane() / 4 + 8 * h;
            place[h] = line_offset(stream.data) + (row < stream.rows ? row : stream.rows - 1) * row_bytes;
        }
        STRATA_ROLL
        for (int step = 0; step < steps; ++step) {
            wait_for_copies<S::depth - 2>();
            barrier();  // the step has landed for all; nobody reads the slot that is filled next, nor x before it is there
            bringing.next();
            if (step == 0 && tile > 0) finish_tile<N>(work, unit - 1, sums + (tile - 1) % 2 * (S::sums / 4));
            const int at = slot * S::stage + lane() / 4 * S::pitch + (Layout<F>::subs == 1 ? group * F::bytes : 0);
            const RowPlace<F> places[2] = {RowPlace<F>(at + (place[0] & 15)), RowPlace<F>(at + 8 * S::pitch + (place[1] & 15))};
            of.add_step(ring, places, x + step * 32 * N * S::record, subs - 32 * step, table);
            STRATA_UNROLL
            for (int h = 0; h < 2; ++h) place[h] += S::step;
            slot = slot + 1 == S::depth ? 0 : slot + 1;
        }
        of.leave(sums + tile % 2 * (S::sums / 4));
    }
    barrier();
    if (tile > 0) finish_tile<N>(work, work.end - 1, sums + (tile - 1) % 2 * (S::sums / 4));
}

}  // namespace strata::STRATA_ISA
