// What a ring of stages in shared memory needs where one thread may bring whole pieces of memory and groups of lanes
// wait for them (NVIDIA's processors since 9.0, STRATA_RINGS): arrivals, 8 bytes of shared memory each.
//
//     begin_arrival(arrival, count)           so many arrive before it is complete; then a fence and a barrier of the
//     block expect_bytes(arrival, bytes)            arrives, and lets it wait for bytes of bulk copies too
//     copy_bulk(to, from, bytes, arrival)     by one thread: 16-byte lines
//     arrive(arrival)
//     wait_for(arrival, parity)               until the turns that are complete are more than those of this parity: 0
//     for
//                                             its first, third .. turn. Of a new arrival 1 is over already
#pragma once

#include "staging.h"

#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ >= 900
#define STRATA_RINGS
#endif
#endif

#if defined(STRATA_RINGS)

namespace strata::STRATA_ISA {

STRATA_INLINE void begin_arrival(SharedPlace arrival, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(arrival), "r"(count) : "memory");
}
STRATA_INLINE void expect_bytes(SharedPlace arrival, int count) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(arrival), "r"(count) : "memory");
}
STRATA_INLINE void arrive(SharedPlace arrival) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(arrival) : "memory");
}
STRATA_INLINE void wait_for(SharedPlace arrival, int parity) {
    uint32_t done;
    do {
        asm volatile(
            "{ .reg .pred there; mbarrier.try_wait.parity.shared::cta.b64 there, [%1], %2; selp.u32 %0, 1, 0, there; }"
            : "=r"(done)
            : "r"(arrival), "r"(parity)
            : "memory");
    } while (!done);
}
STRATA_INLINE void copy_bulk(SharedPlace to, const void* from, int count, SharedPlace arrival) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(count), "r"(arrival)
                 : "memory");
}
STRATA_INLINE void fence_arrivals() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

}  // namespace strata::STRATA_ISA

#endif
