// Registers that some of a block's groups of 32 lanes leave to others (NVIDIA's processors of architecture 9.0a): four
// neighbours, from a multiple of four on, call one of these together. Elsewhere each thread keeps what the launch gave
// it.
#pragma once

#include "device.h"

namespace strata::STRATA_ISA {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int count>
STRATA_INLINE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)); }
template <int count>
STRATA_INLINE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)); }

#else

template <int count>
STRATA_INLINE void take_registers() {}
template <int count>
STRATA_INLINE void give_registers() {}

#endif

}  // namespace strata::STRATA_ISA
