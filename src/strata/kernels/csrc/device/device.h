// The dialect of the device kernels: one source for NVRTC (CUDA), HIPRTC (AMD) and g++ (the host emulator).
//
//     STRATA_KERNEL(name, (params))  a kernel; parameters are pointers, int64_t and float only
//     STRATA_KERNEL_OF(threads, name, (params))  the same, for blocks of exactly that many threads
//     STRATA_KERNEL_UP_TO(threads, name, (params))  the same, for blocks of at most that many
//     STRATA_KERNEL_BESIDE(threads, blocks, name, (params))  the same, where so many blocks share a processor
//     thread_x(), block_x(), block_y(), block_z(), block_size(), grid_x()
//     lane() = thread_x() % 32, warp() = thread_x() / 32: groups of 32 lanes, whatever the width of the hardware's wave
//     barrier()                      the whole block; every thread that has not ended must come to the same place
//     sync_warp()                    the group of 32; here and below all 32 lanes must come to the same place
//     shuffle_xor(v, mask), shuffle(v, source_lane), ballot(bool), any_of(bool)   float, int32_t or uint32_t
//     lane_tree(v)                   docs/numerics.md, rule 5; the sum in every lane
//     largest_of_lanes(v)            of uint32_t, in every lane
//     SHARED(type, name, count)      a static array of the block; DYNAMIC_SHARED(type, name) the launch's bytes
//     fma(a, b, c)                   one rounding; square_root(x) IEEE; dot4(a, b, c) four signed bytes each, plus c
//     atomic_add, atomic_max         on int32_t, the old value; floats are never added atomically
//     load_volatile, store_volatile, fence_system, fence_device
//     start_next()                   what is launched next may start now, if it is an early kernel (device.py)
//     after_previous()               of an early kernel: returns when all that was launched before it is done. Until
//     then
//                                    it may read only what no kernel writes; it comes here before it ends
//     in_turn()                      both, for a kernel that has nothing to do before
//     load16(p), load8(p), load4(p)  words of aligned memory; prefetch(p) and touch(p) bring a line near
//
// Every operation rounds as written (no contraction, no flush to zero, IEEE division), so that a kernel gives the bits
// of its naive twin. Kernels clamp nothing and check nothing: their callers guarantee every index.
#pragma once

#define STRATA_ISA device

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__) || defined(__CUDACC__) || defined(__HIPCC__)
#include "dialect_gpu.h"
#else
#include "host/dialect.h"
#endif

namespace strata::STRATA_ISA {

struct alignas(8) Words2 {
    uint32_t w[2];
};
struct alignas(16) Words4 {
    uint32_t w[4];
};

// p is aligned to the bytes that are read.
STRATA_INLINE uint32_t load4(const void* p) { return *static_cast<const uint32_t*>(p); }
STRATA_INLINE Words2 load8(const void* p) { return *static_cast<const Words2*>(p); }
STRATA_INLINE Words4 load16(const void* p) { return *static_cast<const Words4*>(p); }

STRATA_INLINE int lane() { return thread_x() & 31; }
STRATA_INLINE int warp() { return thread_x() >> 5; }

STRATA_INLINE float lane_tree(float v) {
    for (int mask = 16; mask > 0; mask >>= 1) v = v + shuffle_xor(v, mask);
    return v;
}

STRATA_INLINE uint32_t largest_of_lanes(uint32_t v) {
#if defined(STRATA_LARGEST_OF_LANES)
    return STRATA_LARGEST_OF_LANES(v);
#else
    for (int mask = 16; mask > 0; mask >>= 1) {
        const uint32_t other = shuffle_xor(v, mask);
        v = other > v ? other : v;
    }
    return v;
#endif
}

// An early kernel that needs what others wrote from its first instruction on.
STRATA_INLINE void in_turn() {
    start_next();
    after_previous();
}

// The number of this thread among all threads of a one-dimensional grid: an element of an elementwise kernel.
STRATA_INLINE int64_t element() { return static_cast<int64_t>(block_x()) * block_size() + thread_x(); }

}  // namespace strata::STRATA_ISA
