// Time on the device in nanoseconds, from a clock that all blocks share. A difference is good to about a microsecond.
#pragma once

#include "device.h"

#if !defined(__CUDACC__) && !defined(__HIPCC__) && !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <chrono>
#endif

namespace strata::STRATA_ISA {

STRATA_INLINE int64_t clock_ns() {
#if defined(__HIPCC__) || defined(__HIPCC_RTC__)
    return static_cast<int64_t>(wall_clock64()) * 10;  // 100 MHz
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return static_cast<int64_t>(now);
#else
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
#endif
}

}  // namespace strata::STRATA_ISA
