// Bytes on their way from device memory into shared memory while a group of lanes computes.
#pragma once

#include "bytes.h"

namespace strata::STRATA_ISA {

#if defined(__CUDA_ARCH__)

using SharedPlace = uint32_t;  // an address of shared memory
STRATA_INLINE SharedPlace shared_place(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }
STRATA_INLINE uint32_t shared_number(const void* at) { return shared_place(at); }

STRATA_INLINE void copy16_to(SharedPlace to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
STRATA_INLINE void copy16(void* to, const void* from) { copy16_to(shared_place(to), from); }
STRATA_INLINE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Returns when at most `open` of this lane's committed groups of copies are still under way.
template <int open>
STRATA_INLINE void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

#else

using SharedPlace = uint8_t*;
STRATA_INLINE SharedPlace shared_place(void* at) { return static_cast<uint8_t*>(at); }
STRATA_INLINE uint32_t shared_number(const void* at) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at)); }

STRATA_INLINE void copy16(void* to, const void* from) {
    *static_cast<Words4*>(to) = *static_cast<const Words4*>(from);
}
STRATA_INLINE void copy16_to(SharedPlace to, const void* from) { copy16(to, from); }
STRATA_INLINE void commit_copies() {}
template <int open>
STRATA_INLINE void wait_for_copies() {}

#endif

// Bytes from the 16-byte line's beginning.
STRATA_INLINE int line_offset(const void* at) { return static_cast<int>(reinterpret_cast<uintptr_t>(at) & 15); }

// How far behind `place` in shared memory bytes go that begin `before` bytes after a multiple of 64, so that they do
// there too.
STRATA_INLINE int offset_in_64(int before, const uint8_t* place) {
    return static_cast<int>((static_cast<uint32_t>(before) - shared_number(place)) & 63);
}

// The lanes of a group copy `count` bytes, at most `most`, from `from` and what shares their 16-byte lines to `to`,
// which is aligned to 16: byte i comes to to[from % 16 + i].
template <int most>
STRATA_INLINE void copy_lines(uint8_t* to, const uint8_t* from, int count) {
    const int before = static_cast<int>(reinterpret_cast<uintptr_t>(from) & 15);
    STRATA_UNROLL
    for (int first = 0; first < most + 15; first += 512) {
        const int i = first + 16 * lane();
        if (count > 0 && i < before + count) copy16(to + i, from - before + i);
    }
}

}  // namespace strata::STRATA_ISA
