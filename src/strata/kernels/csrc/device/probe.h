// Kernels for the tests of the dialect itself: what meetings give, and meetings that cannot happen.
#pragma once

#include "quantise.h"

namespace strata::STRATA_ISA {

// out [3, block_size()]: xor by `mask`, the value of lane `source`, the votes of the odd lanes.
STRATA_KERNEL(probe_shuffles, (const float* x, float* out, int64_t mask, int64_t source)) {
    const int t = thread_x(), n = block_size();
    out[t] = shuffle_xor(x[t], static_cast<int>(mask));
    out[n + t] = shuffle(x[t], static_cast<int>(source));
    out[2 * n + t] = static_cast<float>(ballot(t % 2 == 1) >> 16);
}

// Every block reverses its block_size() values through shared memory.
STRATA_KERNEL_OF(64, probe_reverse, (const int32_t* x, int32_t* out)) {
    SHARED(int32_t, kept, 64);
    kept[thread_x()] = x[element()];
    barrier();
    out[element()] = kept[63 - thread_x()];
}

// The same without the barrier: what it gives depends on the order of threads.
STRATA_KERNEL_OF(64, probe_race, (const int32_t* x, int32_t* out)) {
    SHARED(int32_t, kept, 64);
    kept[thread_x()] = x[element()];
    out[element()] = kept[63 - thread_x()];
}

// Tickets in the order of threads and blocks.
STRATA_KERNEL(probe_tickets, (int32_t* counter, int32_t* most, int32_t* out)) {
    const int32_t ticket = atomic_add(counter, 1);
    atomic_max(most, thread_x());
    out[ticket] = static_cast<int32_t>(element());
}

// What shared memory holds before it is written.
STRATA_KERNEL(probe_unset, (float* out)) {
    SHARED(float, fixed, 32);
    DYNAMIC_SHARED(float, given);
    out[2 * thread_x()] = fixed[thread_x()];
    out[2 * thread_x() + 1] = given[thread_x()];
    fixed[thread_x()] = given[thread_x()] = 1.0f;
}

STRATA_KERNEL(probe_half_barrier, (int64_t waiting)) {
    if (thread_x() < waiting) barrier();
    else sync_warp();
}

STRATA_KERNEL(probe_two_barriers, (int64_t first)) {
    if (thread_x() < first) barrier();
    else
        barrier();
}

STRATA_KERNEL(probe_ended_then_barrier, (int32_t* out)) {
    if (thread_x() >= 32) return;
    barrier();
    out[thread_x()] = thread_x();
}

STRATA_KERNEL(probe_missing_lane, (float* out)) {
    if (lane() == 5) return;
    out[thread_x()] = shuffle_xor(1.0f, 1);
}

STRATA_KERNEL(probe_too_much_shared, (float* out)) {
    SHARED(float, large, 16384);
    large[0] = 1.0f;
    out[0] = large[0];
}

// One thread waits, boundedly, for what another writes.
STRATA_KERNEL(probe_spin, (int32_t* word, int32_t* out)) {
    if (thread_x() == 0) {
        int32_t seen = 0;
        for (int tries = 0; tries < 1000 && seen == 0; ++tries) seen = load_volatile(word);
        out[0] = seen;
    } else {
        store_volatile(word, 7);
        fence_system();
    }
}

// out: dot4 of each pair, then fma.
STRATA_KERNEL(probe_arithmetic, (const int32_t* a, const int32_t* b, int32_t* dots, const float* x, float* sums)) {
    const int t = thread_x();
    dots[t] = dot4(a[t], b[t], 3);
    sums[t] = fma(x[t], x[t], -1.0f);
}

// The dialect's own conversions and the lane tree, for a whole group of lanes.
STRATA_KERNEL(probe_numbers, (const uint8_t* halves, float* floats, const float* x, int32_t* codes, float* scale,
                              float* sum)) {
    const int t = thread_x();
    floats[t] = half_to_float(read16(halves + 2 * t));
    codes[t] = quantise_lane(x[t], scale[t]);
    sum[t] = lane_tree(x[t]);
}

}  // namespace strata::STRATA_ISA
