// The products' loop for a few rows of x with long rows of weights that are plain floats.
//
// What a row takes at least is its lanes' chains of dependent additions, so nothing else may stand in their way: a
// block brings some whole rows to shared memory before its turn, turned so that the values of a lane lie one after the
// other, and rows of x likewise at its turn; then a group of lanes does a row, 16 bytes of each at a time.
#pragma once

#include "lanes.h"
#include "products_work.h"

namespace strata::STRATA_ISA {

template <class F, int T, class Work>
STRATA_INLINE void float_lanes(Work work, uint8_t* shared) {
    constexpr int each = 16 / F::bytes;
    work.lines = 1;
    work.start();
    const int first = work.begin - warp(), count = work.end - first, steps = work.cols / 32;
    const LaneLayout<4> inputs = {steps / 4};
    const LaneLayout<each> layout = {steps / each};
    uint8_t* const weights = shared + T * inputs.bytes();
    const int tiles = layout.units * (32 / each);
    STRATA_ROLL
    for (int i = thread_x(); i < count * tiles; i += block_size()) {
        const int row = static_cast<int>(static_cast<uint32_t>(i) / static_cast<uint32_t>(tiles));
        Stream stream;
        work.streams(first + row, &stream);
        bring_tile<each>(weights + row * layout.bytes(), stream.data, layout, i - row * tiles);
    }
    work.wait();
    const int input_tiles = inputs.units * 8;
    STRATA_ROLL
    for (work.first = 0; work.first < work.rows; work.first += T) {
        const int rows = work.count(0);
        if (work.first > 0) barrier();
        STRATA_ROLL
        for (int t = 0; t < rows; ++t)
            for (int i = thread_x(); i < input_tiles; i += block_size())
                bring_tile<4>(shared + t * inputs.bytes(), work.input(0, t), inputs, i);
        barrier();
        STRATA_ROLL
        for (int row = warp(); row < count; row += block_size() / 32) {
            LaneChains<F, T> chains;
            // Of rows that are not there it reads what lies in their place.
            chains.run(weights + row * layout.bytes() + layout.place(lane()), shared + inputs.place(lane()), inputs.bytes(),
                       steps);
            STRATA_UNROLL
            for (int t = 0; t < T; ++t) {
                const float sum = lane_tree(chains.acc[t]);
                if (lane() == 0 && t < rows) work.finish(first + row, 0, t, sum, sum);
            }
        }
    }
}

}  // namespace strata::STRATA_ISA
