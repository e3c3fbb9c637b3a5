// Products of 64 by 64 signed bytes that four neighbouring groups of 32 lanes ask the matrix unit for, which reads them in
// shared memory by itself (NVIDIA's processors of architecture 9.0a, STRATA_WARPGROUPS).
//
//     tile_address(tile)      of rows of 128 bytes, swizzled (matrix.h), from a multiple of 1,024 bytes on; 32 bytes further
//                             is 2 more
//     ask_for(d, x, w)        D [64, 64] = X [64, 32] W [64, 32]^T, of two tiles' addresses
//     take(d)                 returns when it is there
//     take_registers<n>(), give_registers<n>()    from now on a thread of these four groups has n registers
//
// Lane l of the n-th of the four holds rows 16 n + l / 4 + {0, 8} and columns 8 j + 2 (l % 4) + {0, 1}: d[4 j + 2 row + column].
#pragma once

#include "staging.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define STRATA_WARPGROUPS

namespace strata::STRATA_ISA {

#define STRATA_FOUR_RESULTS(how, i) how(d[i]), how(d[i + 1]), how(d[i + 2]), how(d[i + 3])
#define STRATA_RESULTS(how)                                                                                     \
    STRATA_FOUR_RESULTS(how, 0), STRATA_FOUR_RESULTS(how, 4), STRATA_FOUR_RESULTS(how, 8), STRATA_FOUR_RESULTS(how, 12), \
        STRATA_FOUR_RESULTS(how, 16), STRATA_FOUR_RESULTS(how, 20), STRATA_FOUR_RESULTS(how, 24), STRATA_FOUR_RESULTS(how, 28)
#define STRATA_RESULT_NAMES                        \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"

// The lower half of a tile's description: pieces of 16 bytes. The upper half is the same for all: 1,024 bytes from eight rows
// to the next, and 128 bytes that are swizzled.
STRATA_INLINE uint32_t tile_address(SharedPlace tile) { return tile >> 4 | 1u << 16; }

STRATA_INLINE void ask_for(int32_t (&d)[32], uint32_t x, uint32_t w) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{ .reg .b64 x, w; mov.b64 x, {%32, 0x40000040}; mov.b64 w, {%33, 0x40000040}; "
        "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 " STRATA_RESULT_NAMES ", x, w, 0; }"
        : STRATA_RESULTS("=r")
        : "r"(x), "r"(w));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

STRATA_INLINE void take(int32_t (&d)[32]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" : STRATA_RESULTS("+r")::"memory");
}

template <int registers>
STRATA_INLINE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers)); }
template <int registers>
STRATA_INLINE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers)); }

}  // namespace strata::STRATA_ISA

#endif
