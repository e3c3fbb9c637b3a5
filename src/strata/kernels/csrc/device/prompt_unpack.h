// Weights of one format (STRATA_FORMAT) unpacked into panels for products of many rows, records of codes with their
// offsets taken off, as signed bytes, and of the scales of their sub-blocks (prompt_layout.h).
#pragma once

#include "expert_table.h"
#include "matrix.h"
#include "products_plain.h"
#include "products_step.h"
#include "prompt_layout.h"
#include "staging.h"

namespace strata::STRATA_ISA {

constexpr int unpack_threads = 256, unpack_rows = 32;

// A matrix as records; `place_of` is the table of places.
struct Panel {
    uint8_t* records;
    const int64_t* place_of;
    int64_t cols;
};

template <class F>
struct UnpackStage {
    static constexpr int piece = (Step<F>::bytes + 15 + 16) / 16 * 16 + 16;
    static constexpr int groups = unpack_threads / 32;
};

// Four bytes less a number below 128.
STRATA_INLINE uint32_t less(uint32_t w, int bias) {
    return add_bytes(w, (static_cast<uint32_t>(-bias) & 255u) * 0x01010101u);
}

STRATA_INLINE void put_words(uint8_t* at, const uint32_t (&w)[4]) {
    *reinterpret_cast<Words4*>(at) = {{w[0], w[1], w[2], w[3]}};
}

// Where a row has the 16 codes from `half` on of the sub-block at place `place`; `tile` is that of the row's records.
template <class R, int sub>
STRATA_INLINE uint8_t* codes_place(uint8_t* tile, int row, int32_t place, int half) {
    return tile + place / R::steps * R::bytes + swizzled(row, place % R::steps * sub + half);
}

// The lanes write their sub-blocks of a row, lane l that at place `place` (below 0: none). Two neighbours write the
// halves of one sub-block of 32 and then of the other, so that 32 bytes of memory are filled at once.
template <class R, int sub>
STRATA_INLINE void put_codes(uint8_t* tile, int row, int32_t place, const Codes<sub>& c) {
    uint32_t low[4], high[4];
    STRATA_UNROLL
    for (int j = 0; j < 4; ++j) {
        low[j] = less(c.w[j], c.bias);
        high[j] = sub == 32 ? less(c.w[sub == 32 ? 4 + j : j], c.bias) : 0;
    }
    if constexpr (sub == 16) {
        if (place >= 0) put_words(codes_place<R, sub>(tile, row, place, 0), low);
    } else {
        const bool second = (lane() & 1) != 0;
        const int32_t other = shuffle_xor(place, 1);
        const int32_t even = second ? other : place, odd = second ? place : other;
        uint32_t came[4];
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) came[j] = shuffle_xor(second ? low[j] : high[j], 1);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) {
            const uint32_t own = second ? high[j] : low[j];
            low[j] = second ? came[j] : own;   // of the even lane's sub-block
            high[j] = second ? own : came[j];  // of the odd lane's
        }
        if (even >= 0) put_words(codes_place<R, sub>(tile, row, even, second ? 16 : 0), low);
        if (odd >= 0) put_words(codes_place<R, sub>(tile, row, odd, second ? 16 : 0), high);
    }
}

// Rows first .. first + 31 of a matrix with `rows` rows; rows beyond repeat the last.
template <class F>
STRATA_INLINE void unpack_group(const uint8_t* data, const uint8_t* plane, int64_t rows, int64_t first, const Panel& to,
                                unsigned char* shared) {
    using S = UnpackStage<F>;
    const Table table = table_of<F>(reinterpret_cast<const uint32_t*>(shared));
    float* scales = reinterpret_cast<float*>(shared + 4 * Unpack<F>::table_words);  // [1 or 2][32 sub-blocks][33 rows]
    float* minima = scales + 32 * 33;
    uint8_t* ring = reinterpret_cast<uint8_t*>(scales + (F::minima ? 2 : 1) * 32 * 33) + warp() * 4 * S::piece;
    using R = PromptRecord<F::sub, F::minima>;
    const int64_t subs = to.cols / F::sub;
    uint8_t* const tile = to.records + first / record_rows * stages_of(to.cols) * R::bytes;
    const int first_here = static_cast<int>(first % record_rows);
    STRATA_ROLL
    for (int64_t step = 0; step * 32 < subs; ++step) {
        const int64_t index = step * 32 + lane(), left = Step<F>::row_bytes(to.cols) - step * Step<F>::bytes;
        const int count = static_cast<int>(left < Step<F>::bytes ? left : Step<F>::bytes);
        Stream line[4];
        STRATA_UNROLL
        for (int r = 0; r < 4; ++r) {
            const int64_t row = first + warp() * 4 + r, here = row < rows ? row : rows - 1;
            line[r] = {data + here * Step<F>::row_bytes(to.cols), plane, here, 1};
            copy_lines<Step<F>::bytes>(ring + r * S::piece, line[r].data + step * Step<F>::bytes, count);
        }
        commit_copies();
        wait_for_copies<0>();
        sync_warp();
        const int32_t place = index < subs ? static_cast<int32_t>(to.place_of[index]) : -1;
        STRATA_UNROLL
        for (int r = 0; r < 4; ++r) {
            Codes<F::sub> c = {};
            const uint32_t from = static_cast<uint32_t>((reinterpret_cast<uintptr_t>(line[r].data) + step * Step<F>::bytes) & 15);
            const typename Layout<F>::Block block = {reinterpret_cast<const uint32_t*>(ring + r * S::piece),
                                                     from + lane() / Layout<F>::subs * F::bytes};
            if (place >= 0)
                c = codes_of<F>(block, lane() % Layout<F>::subs, line[r], static_cast<int>(index), static_cast<int>(subs), table);
            put_codes<R, F::sub>(tile, first_here + warp() * 4 + r, place, c);
            scales[lane() * 33 + warp() * 4 + r] = c.scale;
            if (F::minima) minima[lane() * 33 + warp() * 4 + r] = c.minimum;
        }
        barrier();
        for (int i = thread_x(); i < 32 * 32; i += unpack_threads) {
            const int sub = i / 32, row = i % 32;
            if (step * 32 + sub >= subs) continue;
            const int32_t place = static_cast<int32_t>(to.place_of[step * 32 + sub]);
            uint8_t* const record = tile + place / R::steps * R::bytes;
            uint8_t* const at = record + place % R::steps * R::line + scale_place(first_here + row) * 4;
            *reinterpret_cast<float*>(at + R::scale) = scales[sub * 33 + row];
            if (F::minima) *reinterpret_cast<float*>(at + R::minimum) = minima[sub * 33 + row];
        }
        barrier();
    }
}

template <class F>
STRATA_INLINE void unpack_rows_of(const uint8_t* data, const uint8_t* plane, int64_t rows, const Panel& to,
                                  unsigned char* shared) {
    if (Unpack<F>::table_words != 0) Unpack<F>::fill(reinterpret_cast<uint32_t*>(shared), thread_x(), unpack_threads);
    barrier();
    const int64_t groups = (rows + unpack_rows - 1) / unpack_rows;
    for (int64_t group = block_x(); group < groups; group += grid_x())
        unpack_group<F>(data, plane, rows, group * unpack_rows, to, shared);
}

// A matrix [rows, cols] -> a panel. Grid: x groups of 32 rows (they loop).
STRATA_KERNEL_OF(unpack_threads, unpack_matrix,
                 (const uint8_t* data, const uint8_t* plane, uint8_t* records, const int64_t* place_of, int64_t rows,
                  int64_t cols)) {
    DYNAMIC_SHARED(unsigned char, shared);
    if constexpr (!is_plain<STRATA_FORMAT>) unpack_rows_of<STRATA_FORMAT>(data, plane, rows, {records, place_of, cols}, shared);
}

// Matrix `kind` of experts first + block_y() that have this format and rows in this call -> panels of `padded` rows.
STRATA_KERNEL_OF(unpack_threads, unpack_experts,
                 (const ExpertEntry* table, const int32_t* tile_starts, int64_t first, int64_t kind, int64_t format,
                  uint8_t* records, const int64_t* place_of, int64_t rows, int64_t cols, int64_t padded)) {
    DYNAMIC_SHARED(unsigned char, shared);
    const int64_t expert = first + block_y();
    const ExpertEntry& e = table[expert];
    if (format_of(e, static_cast<int>(kind)) != format || tile_starts[expert] == tile_starts[expert + 1]) return;
    if constexpr (!is_plain<STRATA_FORMAT>) {
        using R = PromptRecord<STRATA_FORMAT::sub, STRATA_FORMAT::minima>;
        uint8_t* const panel = records + block_y() * (padded / record_rows) * stages_of(cols) * R::bytes;
        unpack_rows_of<STRATA_FORMAT>(reinterpret_cast<const uint8_t*>(e.data[kind]),
                                      reinterpret_cast<const uint8_t*>(e.scales[kind]), rows, {panel, place_of, cols}, shared);
    }
}

}  // namespace strata::STRATA_ISA
