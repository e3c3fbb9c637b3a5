// Operands of a product of many rows on their way into shared memory, stage by stage: a ring of stages, of which each
// has the records of a block's rows of x (one for each 64) and one of the weight. The groups of lanes that compute go
// through all stages of the block's units with `next`; a stage may be read from then until the next `next`. Four more
// groups call `feed` instead.
//
// Where rings are (ring.h) a lane of one of them asks for whole records, and groups wait for what they read, not for
// each other: a stage that all groups have left is filled again. Elsewhere all threads copy, between barriers.
#pragma once

#include "prompt_tiles.h"
#include "ring.h"

namespace strata::STRATA_ISA {

// Where the operands lie (prompt_layout.h). Weights: one panel of `padded` rows for each expert from the first on.
struct PromptOperands {
    const uint8_t* x;
    const uint8_t* w;
    int64_t cols, padded, first_expert;
};

// A stage in shared memory, for a block of so many times 128 threads that compute.
template <int sub, bool minima, int groups>
struct PromptStage {
    using Rows = PromptRecord<sub, true>;     // of x
    using Lines = PromptRecord<sub, minima>;  // of the weight; of x that much is needed
    static constexpr int warps = 4 * groups, threads = 32 * (warps + 4);
    static constexpr int w = groups * Lines::bytes, bytes = w + Lines::bytes;
    static constexpr int depth = groups == 1 || (sub == 16 && minima) ? 2 : 3;  // stages in shared memory
    static constexpr int arrivals = 1024;  // bytes before the stages, which begin at multiples of as many
};

template <int sub, bool minima, int groups>
struct PromptLoader {
    using Stage = PromptStage<sub, minima, groups>;
    const PromptWork& work;
    const PromptOperands& from;
    uint8_t* shared;
    int stride, stages;
    int slot = 0, turn = 0;  // of the ring; how often it went around, modulo 2

    STRATA_METHOD uint8_t* place(int at) const { return shared + Stage::arrivals + at * Stage::bytes; }

    STRATA_METHOD void pass_slot() {
        if (++slot == Stage::depth) slot = 0, turn ^= 1;
    }

#if defined(STRATA_RINGS)

    SharedPlace left = 0;  // the arrival for those that have left the stage they read last

    STRATA_METHOD SharedPlace full(int at) const { return shared_place(shared) + at * 16; }
    STRATA_METHOD SharedPlace empty(int at) const { return shared_place(shared) + at * 16 + 8; }

    STRATA_METHOD void begin() {
        left = empty(Stage::depth);  // which nobody waits for
        if (thread_x() == 0) {
            for (int i = 0; i < Stage::depth; ++i) begin_arrival(full(i), 1), begin_arrival(empty(i), Stage::warps);
            begin_arrival(left, Stage::warps);
            fence_arrivals();
        }
        barrier();
    }

    STRATA_METHOD void feed() {
        constexpr int bytes = Stage::Lines::bytes;
        if (warp() > Stage::warps || lane() > 0) return;
        for (int unit = work.find(block_x(), stride); unit < work.units; unit = work.find(unit + stride, stride)) {
            const RowsTile tile = work.tile_of(unit);
            const uint8_t* x = x_of(tile);
            const uint8_t* w = w_of(tile, unit);
            const int records = (tile.count + record_rows - 1) / record_rows;
            STRATA_ROLL
            for (int stage = 0; stage < stages; ++stage, pass_slot()) {
                wait_for(empty(slot), turn ^ 1);
                expect_bytes(full(slot), (records + 1) * bytes);
                const SharedPlace to = shared_place(place(slot));
                STRATA_ROLL
                for (int i = 0; i < records; ++i)
                    copy_bulk(to + i * bytes, x + (i * stages + stage) * Stage::Rows::bytes, bytes, full(slot));
                copy_bulk(to + Stage::w, w + stage * bytes, bytes, full(slot));
            }
        }
    }

    STRATA_METHOD const uint8_t* next() {
        sync_warp();
        if (lane() == 0) arrive(left);
        left = empty(slot);
        wait_for(full(slot), turn);
        const uint8_t* const here = place(slot);
        pass_slot();
        return here;
    }

#else

    // Of the stage that is asked for next: its unit, its number there, where it lies, records of x that it has.
    int unit = 0, stage = 0, records = 0;
    const uint8_t* x = nullptr;
    const uint8_t* w = nullptr;

    STRATA_METHOD void bring(int to) {
        if (unit < work.units) {
            if (stage == 0) {
                const RowsTile tile = work.tile_of(unit);
                x = x_of(tile), w = w_of(tile, unit);
                records = (tile.count + record_rows - 1) / record_rows;
            }
            for (int i = 0; i <= records; ++i) {
                uint8_t* const record = place(to) + (i < records ? i * Stage::Lines::bytes : Stage::w);
                const uint8_t* const source = i < records ? x + (i * stages + stage) * Stage::Rows::bytes
                                                          : w + stage * Stage::Lines::bytes;
                for (int at = thread_x() * 16; at < Stage::Lines::bytes; at += Stage::threads * 16)
                    copy16(record + at, source + at);
            }
            if (++stage == stages) stage = 0, unit = work.find(unit + stride, stride);
        }
        commit_copies();
    }

    STRATA_METHOD void begin() {
        unit = work.find(block_x(), stride);
        for (int i = 0; i + 1 < Stage::depth; ++i) bring(i);
    }

    STRATA_METHOD void feed() {
        for (int here = work.find(block_x(), stride); here < work.units; here = work.find(here + stride, stride))
            for (int i = 0; i < stages; ++i) next();
    }

    STRATA_METHOD const uint8_t* next() {
        wait_for_copies<Stage::depth - 2>();
        barrier();  // everyone's copies have landed, and nobody reads the stage that is filled next
        bring(slot == 0 ? Stage::depth - 1 : slot - 1);
        const uint8_t* const here = place(slot);
        pass_slot();
        return here;
    }

#endif

    STRATA_METHOD const uint8_t* x_of(const RowsTile& tile) const {
        return from.x + static_cast<int64_t>(tile.packed) * stages * Stage::Rows::bytes;
    }

    STRATA_METHOD const uint8_t* w_of(const RowsTile& tile, int unit) const {
        const int64_t panel = (tile.expert - (work.tiles ? from.first_expert : 0)) * (from.padded / record_rows);
        return from.w + (panel + work.line_of(unit)) * stages * Stage::Lines::bytes;
    }
};

}  // namespace strata::STRATA_ISA
