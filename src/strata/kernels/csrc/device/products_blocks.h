// The products' loop over formats that are unpacked in parts (products_parts.h), for rows of which few units fit into
// shared memory (products_share.h does the others). A unit is as many rows as a part has sub-blocks, of one matrix or
// two; a part of the lanes has each row, and every lane holds the sums of the sub-blocks of its parts, of 32 of the
// lane rule. Bytes come to shared memory in stages of two parts a lane, some stages ahead of the one that is computed.
#pragma once

#include "products_parts.h"
#include "staging.h"

namespace strata::STRATA_ISA {

// Shared memory of a group; kernels/linear/launch.py computes the same sizes.
template <class F, int L>
struct Stages {
    static constexpr int rows = Part<F>::subs, lanes = 32 / rows, each = Layout<F>::subs / rows;
    static constexpr int step = lanes / each * F::bytes;  // of a row, a part for each of its lanes
    static constexpr int steps = 2;                                // of a stage
    static constexpr int piece = (steps * step + 30) / 16 * 16 + 16;
    static constexpr int stage = L * rows * piece, depth = L == 1 ? 3 : 2, bytes = depth * (stage + 16);
    static_assert(step % 4 == 0, "all steps of a row lie alike");
};

// Brings the bytes of a group's units, a stage at a time.
template <class F, int L, class Work>
struct StageBringing {
    using S = Stages<F, L>;
    const Work& work;
    uint8_t* const at;
    const int row_bytes, stages;
    int unit, stage = 0, slot = 0, left = 0, rows = 0;  // left: bytes of each of the unit's rows that were not asked for
    const uint8_t* source[L] = {};  // the next bytes of the lane's row
    static constexpr int whole = S::steps * S::step;

    STRATA_METHOD StageHead& head(int of) const { return *reinterpret_cast<StageHead*>(at + of * (S::stage + 16)); }
    // Of a lane's row in the first matrix; that of the second lies S::rows * S::piece further.
    STRATA_METHOD uint8_t* place(int of) const { return at + of * (S::stage + 16) + 16 + lane() / S::lanes * S::piece; }

    // The stage that was asked for S::depth calls ago is there for all lanes.
    STRATA_METHOD void landed() const {
        wait_for_copies<S::depth - 1>();
        sync_warp();
    }

    STRATA_METHOD void next() {
        if (stage == 0) {
            Stream streams[L] = {};
            for (; unit < work.end; unit += work.stride) {
                work.streams(unit, streams);
                if (streams[0].rows > 0) break;
            }
            left = row_bytes, rows = streams[0].rows;
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) source[l] = streams[l].data + lane() / S::lanes * row_bytes;
            const int found = unit < work.end ? unit : -1;
            if (lane() == 0) head(slot) = {found, rows, {line_offset(streams[0].data), line_offset(streams[L - 1].data)}};
        }
        if (unit < work.end) {
            const int p = lane() % S::lanes, there = lane() / S::lanes < rows ? left < whole ? left : whole : 0;
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) {
                const int before = line_offset(source[l]), count = there ? before + there - 16 * p : 0;
                const uint8_t* const from = settled(source[l] - before + 16 * p);
                const SharedPlace to = settled(shared_place(place(slot) + l * S::rows * S::piece + 16 * p));
                STRATA_UNROLL
                for (int i = 0; i < whole + 15; i += 16 * S::lanes)
                    if (i < count) copy16_to(to + i, from + i);
                source[l] += whole;
            }
            left -= whole;
            if (++stage == stages) stage = 0, unit += work.stride;
        }
        commit_copies();
        slot = slot + 1 == S::depth ? 0 : slot + 1;
    }
};

// A unit with T rows of x: what its lanes add up.
template <class F, int L, int T>
struct BlockSums {
    static constexpr int subs = Part<F>::subs;
    const typename Part<F>::Lane lane;
    const uint8_t* x[T] = {};  // where the first sub-block of the lane's next part lies
    float acc[L][T][subs] = {};

    STRATA_METHOD void add_part(const typename Layout<F>::Block (&block)[L]) {
        Codes<F::sub> c[L][subs];
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) Part<F>::get(lane, block[l], c[l]);
        STRATA_UNROLL
        for (int j = 0; j < subs; ++j) {
            STRATA_UNROLL
            for (int t = 0; t < T; ++t) {
                const Quantised<F::sub> in = input<F::sub>(x[t] + lane.places * j);
                STRATA_UNROLL
                for (int l = 0; l < L; ++l) acc[l][t][j] = add<F>(c[l][j], in, acc[l][t][j]);
            }
        }
        STRATA_UNROLL
        for (int t = 0; t < T; ++t) x[t] += Record<F::sub>::bytes;
    }
};

// A unit whose first stage lies in slot `slot` and is there.
template <class F, int L, int T, class Work>
STRATA_INLINE void block_rows(const Work& work, const Inputs<T>& in, StageBringing<F, L, Work>& bringing, int& slot) {
    using S = Stages<F, L>;
    const int row = lane() / S::lanes, p = lane() % S::lanes, parts = work.cols / (F::sub * S::rows);
    const StageHead head = bringing.head(slot);
    const int unit = head.unit, offset = keep(Part<F>::block_of(p) * F::bytes);
    BlockSums<F, L, T> sums = {typename Part<F>::Lane(p)};
    STRATA_UNROLL
    for (int t = 0; t < T; ++t) sums.x[t] = in.base + in.offset[t] + keep(16 * Part<F>::place(p));
    int before[L], part = row < head.rows ? p : parts;  // the lane's next one
    STRATA_UNROLL
    for (int l = 0; l < L; ++l) before[l] = head.before[l] + row * bringing.row_bytes;
    STRATA_ROLL
    for (int stage = 0; stage < bringing.stages; ++stage) {
        if (stage > 0) bringing.landed();
        typename Layout<F>::Block block[L];
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) {
            const int at = keep(static_cast<int>((before[l] & 15) + offset)), exact = Layout<F>::align % 4 ? at & 3 : 0;
            block[l] = {reinterpret_cast<const uint32_t*>(bringing.place(slot) + l * S::rows * S::piece + (at - exact)),
                        static_cast<uint32_t>(exact)};
            before[l] += S::steps * S::step;
        }
        STRATA_UNROLL
        for (int k = 0; k < S::steps; ++k) {
            if (part < parts) sums.add_part(block);
            part += S::lanes;
            STRATA_UNROLL
            for (int l = 0; l < L; ++l) block[l].words += S::step / 4;
        }
        sync_warp();  // nobody reads the slot that is filled next
        bringing.next();
        slot = slot + 1 == S::depth ? 0 : slot + 1;
    }
    STRATA_UNROLL
    for (int t = 0; t < T; ++t) {
        float sum[L];
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) sum[l] = Part<F>::tree(sums.lane, sums.acc[l][t]);
        if (p == 0 && row < head.rows && t < work.count(unit)) work.finish(unit, row, t, sum[0], sum[L - 1]);
    }
}

// Work as in products_stream.h, with units of Part<F>::subs rows.
template <class F, int L, int T, class Work>
STRATA_INLINE void run_blocks(Work& work, unsigned char* shared) {
    using S = Stages<F, L>;
    constexpr int stage = S::steps * S::step;
    const int row_bytes = work.cols / F::block * F::bytes;
    work.start();
    StageBringing<F, L, Work> bringing = {work, shared + warp() * S::bytes, row_bytes, (row_bytes + stage - 1) / stage, work.begin};
    STRATA_UNROLL
    for (int i = 0; i < S::depth; ++i) bringing.next();
    work.wait();
    const InputRows<F, T, Work> rows = {shared + block_size() / 32 * S::bytes};
    rows.bring(work);
    int slot = 0;
    STRATA_ROLL
    for (;;) {
        bringing.landed();
        const int unit = bringing.head(slot).unit;
        if (unit < 0) return;
        if (T == 2 && !work.one_input() && work.count(unit) == 1) block_rows<F, L, 1>(work, inputs_of<1>(work, unit), bringing, slot);
        else block_rows<F, L, T>(work, rows.of(work, unit), bringing, slot);
    }
}

}  // namespace strata::STRATA_ISA
