// Bytes on their way from device memory into shared memory, asked for by neighbouring lanes of a group, all of which
// read them later. What arrives together has an arrival, 8 bytes of shared memory:
//
//     expect(arrival, copies)                 one thread, before a barrier of the block: so many copies arrive together
//     bring<lanes>(arrival, to, from, count)  a copy, called by all its `lanes` neighbours: `count` bytes of 16-byte
//     lines, or 0 bring_all<lanes>(arrival, to, from, count)   the same, where `count` is not 0 lines_arrived<since>()
//     lines that this lane itself copied (copy16, then commit_copies) are there; asked() was
//                                             called `since` times since
//     asked()                                 all lanes, once all copies that arrive together were asked for, or none
//     arrived<ahead>(arrival, turn)           all lanes: the arrival's copies of this turn, its 0th, 1st .., are there;
//                                             asked() was called at most `ahead` times since
//     arrived_behind(arrival, turn, ahead)    the same, where `ahead` is known when it runs
//     arrived_for_all(arrival, turn)          all threads of the block: what one group asked for is there
//
// One lane asks for a whole copy where the processor can; otherwise every lane copies lines of 16 bytes.
#pragma once

#include "staging.h"

namespace strata::STRATA_ISA {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

STRATA_INLINE void expect(uint64_t* arrival, int copies) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_place(arrival)), "r"(copies) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

template <int lanes>
STRATA_INLINE void bring_all(uint64_t* arrival, uint8_t* to, const uint8_t* from, int count) {
    if (lane() % lanes != 0) return;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(arrival)), "r"(count) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_place(to)),
                 "l"(from), "r"(count), "r"(shared_place(arrival))
                 : "memory");
}

template <int lanes>
STRATA_INLINE void bring(uint64_t* arrival, uint8_t* to, const uint8_t* from, int count) {
    if (lane() % lanes != 0) return;
    if (count == 0) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_place(arrival)) : "memory");
        return;
    }
    bring_all<1>(arrival, to, from, count);
}

STRATA_INLINE void asked() {}

template <int since>
STRATA_INLINE void lines_arrived() {
    wait_for_copies<0>();
}

template <int ahead>
STRATA_INLINE void arrived(uint64_t* arrival, int turn) {
    uint32_t done;
    do {
        asm volatile(
            "{ .reg .pred there; mbarrier.try_wait.parity.shared::cta.b64 there, [%1], %2; selp.u32 %0, 1, 0, there; }"
            : "=r"(done)
            : "r"(shared_place(arrival)), "r"(turn & 1)
            : "memory");
    } while (!done);
}

STRATA_INLINE void arrived_behind(uint64_t* arrival, int turn, int) { arrived<0>(arrival, turn); }
STRATA_INLINE void arrived_for_all(uint64_t* arrival, int turn) { arrived<0>(arrival, turn); }

#else

STRATA_INLINE void expect(uint64_t*, int) {}

template <int lanes>
STRATA_INLINE void bring(uint64_t*, uint8_t* to, const uint8_t* from, int count) {
    for (int i = lane() % lanes * 16; i < count; i += 16 * lanes) copy16(to + i, from + i);
}

template <int lanes>
STRATA_INLINE void bring_all(uint64_t* arrival, uint8_t* to, const uint8_t* from, int count) {
    bring<lanes>(arrival, to, from, count);
}

STRATA_INLINE void asked() { commit_copies(); }

template <int since>
STRATA_INLINE void lines_arrived() {
    wait_for_copies<since>();
}

template <int ahead>
STRATA_INLINE void arrived(uint64_t*, int) {
    wait_for_copies<ahead>();
    sync_warp();
}

STRATA_INLINE void arrived_behind(uint64_t* arrival, int turn, int ahead) {
    switch (ahead) {
        case 0: return arrived<0>(arrival, turn);
        case 1: return arrived<1>(arrival, turn);
        case 2: return arrived<2>(arrival, turn);
        default: return arrived<3>(arrival, turn);
    }
}

STRATA_INLINE void arrived_for_all(uint64_t*, int) {
    commit_copies();
    wait_for_copies<0>();
    barrier();
}

#endif

}  // namespace strata::STRATA_ISA
