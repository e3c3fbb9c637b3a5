// The products' loop for one or two rows of x, over formats whose lanes unpack several sub-blocks at once
// (products_parts.h). A unit is as many rows of weights as a part has sub-blocks, done by one group of lanes; it lies
// in shared memory as it lies in its matrix, brought by one bulk copy, the first ones before x is there. What bounds
// these products is what shared memory gives in a cycle: a group computes two units at once, which share what is read
// of x.
#pragma once

#include "arrivals.h"
#include "products_parts.h"
#include "products_work.h"

namespace strata::STRATA_ISA {

constexpr int share_most = 72;  // slots of all groups; kernels/linear/share.py computes how many there are

// What is known of a unit whose bytes are on their way: where they begin in their 16-byte line, and where its results
// go.
struct UnitNote {
    RoundResult result;
    int before;
};

// The slots of a group, for whole units.
template <class Work>
struct UnitBringing {
    const Work& work;
    uint8_t* const ring;
    uint64_t* const arrivals;
    UnitNote* const notes;
    const int row_bytes, room, slots;
    int unit, slot = 0;  // asked for next

    STRATA_METHOD void next() {
        if (unit < work.end) {
            Stream stream = {};
            work.streams(unit, &stream);
            const int before = line_offset(stream.data);
            if (lane() == 0) notes[slot] = {work.result(unit), before};  // seen by who has seen the arrival
            const int count = (before + stream.rows * row_bytes + 15) & ~15;
            bring_all<32>(arrivals + slot, ring + slot * room, stream.data - before, count);
        }
        asked();
        unit += work.stride;
        slot = slot + 1 == slots ? 0 : slot + 1;
    }
};

// What a lane adds up of R units with T rows of x: the sums of a row of weights of each.
template <class F, int R, int T>
struct PartSums {
    static constexpr int subs = Part<F>::subs;
    using Block = typename Layout<F>::Block;
    const typename Part<F>::Lane lane;
    const uint8_t* x[T] = {};  // where the first sub-block of the lane's next part lies
    float acc[T][R][subs] = {};

    STRATA_METHOD void add_part(Block (&block)[R]) {
        Codes<F::sub> c[R][subs];
        STRATA_UNROLL
        for (int r = 0; r < R; ++r) {
            Part<F>::get(lane, block[r], c[r]);
            block[r].words += Step<F>::bytes / 4;
        }
        STRATA_UNROLL
        for (int j = 0; j < subs; ++j) {
            STRATA_UNROLL
            for (int t = 0; t < T; ++t) {
                const Quantised<F::sub> in = input<F::sub>(x[t] + j * lane.places);
                STRATA_UNROLL
                for (int r = 0; r < R; ++r) acc[t][r][j] = add<F>(c[r][j], in, acc[t][r][j]);
            }
        }
        STRATA_UNROLL
        for (int t = 0; t < T; ++t) x[t] += Record<F::sub>::bytes;
    }
};

// R units whose bytes are there, with x read once for all.
template <class F, int R, int T>
STRATA_INLINE void part_rows(const UnitNote* const (&notes)[R], const uint8_t* const (&slots)[R], const Inputs<T>& in,
                             int blocks, int row_bytes, int count) {
    constexpr int lanes = 32 / Part<F>::subs, in_step = 32 * F::sub / F::block;
    static_assert(Step<F>::bytes % 4 == 0, "all steps of a row lie alike");
    const int row = lane() / lanes, p = lane() % lanes;
    PartSums<F, R, T> sums = {typename Part<F>::Lane(p)};
    STRATA_UNROLL
    for (int t = 0; t < T; ++t) sums.x[t] = in.base + in.offset[t] + 16 * Part<F>::place(p);
    typename Layout<F>::Block block[R];
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
        const int at = notes[r]->before + row * row_bytes + Part<F>::block_of(p) * F::bytes;
        const int exact = Layout<F>::align % 4 ? at & 3 : 0;
        block[r] = {reinterpret_cast<const uint32_t*>(slots[r] + (at - exact)), static_cast<uint32_t>(exact)};
    }
    int done = 0;  // blocks
    STRATA_ROLL
    for (; done + in_step <= blocks; done += in_step) sums.add_part(block);
    if (done + Part<F>::block_of(p) < blocks) sums.add_part(block);
    sync_warp();
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
        const RoundResult result = notes[r]->result;
        STRATA_UNROLL
        for (int t = 0; t < T; ++t) {
            const float sum = Part<F>::tree(sums.lane, sums.acc[t][r]);
            if (p == 0 && row < result.rows && t < count) result.to[t * result.stride + row] = sum * result.scale;
        }
    }
}

// The slots of a group of which R are computed at once.
template <class F, int R, int T, class Work>
STRATA_INLINE void share_units(const Work& work, const InputRows<F, T, Work>& rows, UnitBringing<Work>& bringing) {
    const int slots = bringing.slots, count = work.count(0);
    const Inputs<T> in = rows.of(work, 0);
    int slot = 0, turn = 0;
    const auto take = [&](const uint8_t*& bytes, const UnitNote*& note, int taken) {
        arrived_behind(bringing.arrivals + slot, turn, slots - 1 - taken);
        bytes = bringing.ring + slot * bringing.room, note = bringing.notes + slot;
        if (++slot == slots) slot = 0, ++turn;
    };
    int unit = work.begin;
    STRATA_ROLL
    for (; unit + (R - 1) * work.stride < work.end; unit += R * work.stride) {
        const uint8_t* bytes[R];
        const UnitNote* notes[R];
        STRATA_UNROLL
        for (int r = 0; r < R; ++r) take(bytes[r], notes[r], r);
        part_rows<F, R, T>(notes, bytes, in, work.cols / F::block, bringing.row_bytes, count);
        sync_warp();  // nobody reads the slots that are filled next
        STRATA_UNROLL
        for (int r = 0; r < R; ++r) bringing.next();
    }
    if constexpr (R > 1) {
        if (unit >= work.end) return;
        const uint8_t* bytes[1];
        const UnitNote* notes[1];
        take(bytes[0], notes[0], 0);
        part_rows<F, 1, T>(notes, bytes, in, work.cols / F::block, bringing.row_bytes, count);
    }
}

template <class F, int T, class Work>
STRATA_INLINE void run_share(Work& work, unsigned char* shared, int slots) {
    SHARED(uint64_t, arrivals, share_most);
    SHARED(UnitNote, notes, share_most);
    const int row_of = static_cast<int>(row_bytes<F>(work.cols)), room = (Part<F>::subs * row_of + 31) / 16 * 16 + 16;
    const int x_bytes = T * static_cast<int>(quantised_bytes<F::sub>(work.cols)), first = warp() * slots;
    work.start();
    UnitBringing<Work> bringing = {work, shared + x_bytes + first * room, arrivals + first, notes + first, row_of, room, slots, work.begin};
    if (lane() < slots) expect(bringing.arrivals + lane(), 1);
    sync_warp();
    STRATA_ROLL
    for (int i = 0; i < slots; ++i) bringing.next();
    work.wait();
    const InputRows<F, T, Work> rows = {shared};
    rows.bring(work);
    if (slots > 1) share_units<F, 2, T>(work, rows, bringing);
    else share_units<F, 1, T>(work, rows, bringing);
}

}  // namespace strata::STRATA_ISA
