// How the bytes of a group's units come to shared memory (products_split.h): in stages of some steps, a stage ahead of
// the one that is computed.
#pragma once

#include "arrivals.h"
#include "expert_work.h"

namespace strata::STRATA_ISA {

// Lanes of a row: whole blocks of the format in a step.
template <class F>
constexpr int least_parts = Layout<F>::subs > 4 ? Layout<F>::subs : 4;

// Shared memory of a group; kernels/experts/launch.py computes the same sizes.
template <class F, int L, int P>
struct Split {
    static constexpr int parts = P, rows = 32 / P, sums = 32 / P;
    static constexpr int step = P * F::sub / F::block * F::bytes;  // of a row
    static constexpr int steps = step <= 300 ? 5 : 2;              // of a stage
    static constexpr bool long_stages = steps == 5;  // mostly a row is one
    // Stages asked for before one is there. With more of them, what is needed first arrives as late as what is needed
    // last.
    static constexpr int ahead = long_stages ? 1 : 2;
    static constexpr int whole = steps * step;
    static constexpr int piece = (whole + 15 + 16) / 16 * 16 + 16;  // any alignment, and reads past the end
    static constexpr int matrix = rows * piece + 16;  // a unit that is one stage may begin anywhere in 64 bytes
    static constexpr int slot = 16 + L * matrix, depth = 2, bytes = depth * slot;  // an arrival comes first
    static_assert(P * F::sub % F::block == 0, "a step has whole blocks");
};

// Brings the bytes of a group's units, a stage at a time. Rows of one stage lie one after the other, those of several
// stages S::piece apart. Units of one stage begin as far after a multiple of 64 as they do where they come from: over
// PCIe each line of 128 in shared memory is asked for by itself, with a request for every part of another line (GB/s:
// 49 where lines are lines, 41 where halves are, 21 to 24 at other multiples of 16; lines take more room than IQ3_S
// leaves).
template <class S, int L, class Work>
struct SplitBringing {
    const Work& work;
    uint8_t* const at;
    Unit unit;
    const int row_bytes, stages;
    int stage = 0, slot = 0;  // asked for next

    STRATA_METHOD SplitBringing(const Work& w, uint8_t* ring, int bytes_of_row)
        : work(w), at(ring), unit(w.unit_of(w.begin)), row_bytes(bytes_of_row), stages((bytes_of_row + S::whole - 1) / S::whole) {}

    STRATA_METHOD uint64_t* arrival(int of) const { return reinterpret_cast<uint64_t*>(at + of * S::slot); }
    STRATA_METHOD uint8_t* place(int of, int l) const { return at + of * S::slot + 16 + l * S::matrix; }
    // From there to a row of a unit that begins `before` bytes after a multiple of 64.
    STRATA_METHOD int place_of_row(const uint8_t* place, int before, int row) const {
        const int first = row * row_bytes;
        return stages == 1 ? offset_in_64(before, place) + first : row * S::piece + ((before + first) & 15);
    }
    STRATA_METHOD const uint8_t* source(const Unit& of, int l) const {
        return pointer(work.data(of.job, l)) + static_cast<int64_t>(of.first) * row_bytes;
    }
    STRATA_METHOD int before(const Unit& of, int l) const {
        return static_cast<int>(static_cast<uint32_t>(work.data(of.job, l)) + static_cast<uint32_t>(of.first * row_bytes)) & 63;
    }

    STRATA_METHOD void start() {
        if (lane() < S::depth) expect(arrival(lane()), stages == 1 ? L : L * S::rows);
        sync_warp();
    }

    // `of`, or the group's next unit that is this launch's.
    STRATA_METHOD void find(Unit& of) const {
        STRATA_ROLL
        while (of.number < work.end && !work.has(of)) work.advance(of);
    }

    STRATA_METHOD void bring_unit() const {
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) {
            const uint8_t* const from = source(unit, l);
            uint8_t* const to = place(slot, l);
            const int first = offset_in_64(before(unit, l), to), more = first & 15, count = more + work.rows_of(unit) * row_bytes;
            bring_all<32>(arrival(slot), to + first - more, from - more, (count + 15) & ~15);
        }
    }
    STRATA_METHOD void bring_stage() const {
        const int row = lane() / S::parts, left = row_bytes - stage * S::whole, count = left < S::whole ? left : S::whole;
        STRATA_UNROLL
        for (int l = 0; l < L; ++l) {
            const uint8_t* const from = source(unit, l) + row * row_bytes + stage * S::whole;
            const int before = line_offset(from), all = row < work.rows_of(unit) ? (before + count + 15) & ~15 : 0;
            bring<S::parts>(arrival(slot), place(slot, l) + row * S::piece, from - before, all);
        }
    }

    STRATA_METHOD void next() {
        if (stage == 0) find(unit);
        if (unit.number < work.end) {
            if (stages == 1) bring_unit();
            else bring_stage();
            if (++stage == stages) stage = 0, work.advance(unit);
        }
        asked();
        slot ^= 1;
    }
};

}  // namespace strata::STRATA_ISA
