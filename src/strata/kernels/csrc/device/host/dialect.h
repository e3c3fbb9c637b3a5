// The dialect on the host: every thread of a block is a fibre (block.h), and what threads do together is a meeting.
#pragma once

#include <math.h>
#include <stdint.h>

#include <atomic>
#include <cstring>

#include "block.h"
#include "registry.h"

#define STRATA_INLINE static inline
#define STRATA_TABLE static constexpr

#define STRATA_KERNEL(name, params) STRATA_KERNEL_(name, params, 0)
#define STRATA_KERNEL_OF(threads, name, params) STRATA_KERNEL_(name, params, threads)
#define STRATA_KERNEL_UP_TO(threads, name, params) STRATA_KERNEL_(name, params, 0)
#define STRATA_KERNEL_BESIDE(threads, blocks, name, params) STRATA_KERNEL_(name, params, 0)
#define STRATA_KERNEL_(name, params, threads)                                                             \
    static void name params;                                                                              \
    [[maybe_unused]] static const bool name##_known = ::strata::simt::remember<&name>(STRATA_UNIT, #name, threads); \
    static void name params
#define SHARED(type, name, count)                                         \
    static ::strata::simt::SharedArray<type, (count)> name##_of_the_block; \
    auto& name = name##_of_the_block.in(*::strata::simt::current())
#define DYNAMIC_SHARED(type, name) \
    type* const name = reinterpret_cast<type*>(::strata::simt::current()->dynamic_shared())

namespace strata::simt {

// A static shared array: set to 0xff when a block uses it for the first time, as nothing else can be relied on.
template <class T, int count>
class SharedArray {
public:
    T (&in(Block& block))[count] {
        if (used_by_ != block.number() || of_ != &block) {
            used_by_ = block.number();
            of_ = &block;
            memset(static_cast<void*>(values_), 0xff, sizeof(values_));
            block.use_shared(sizeof(values_));
        }
        return values_;
    }

private:
    alignas(16) T values_[count];
    uint64_t used_by_ = 0;
    const Block* of_ = nullptr;
};

}  // namespace strata::simt

namespace strata::STRATA_ISA {

using simt::Meeting;

STRATA_INLINE int thread_x() { return simt::current()->thread(); }
STRATA_INLINE int block_x() { return simt::current()->at().x; }
STRATA_INLINE int block_y() { return simt::current()->at().y; }
STRATA_INLINE int block_z() { return simt::current()->at().z; }
STRATA_INLINE int block_size() { return simt::current()->threads(); }
STRATA_INLINE int grid_x() { return simt::current()->grid().x; }

// The line of the caller tells two meetings apart.
STRATA_INLINE void barrier(int line = __builtin_LINE()) { simt::current()->meet(Meeting::barrier, line); }
STRATA_INLINE void sync_warp(int line = __builtin_LINE()) { simt::current()->meet(Meeting::sync_warp, line); }

template <class T>
STRATA_INLINE T exchanged(Meeting meeting, T v, int argument, int line) {
    static_assert(sizeof(T) == 4, "a shuffle moves float, int32_t or uint32_t");
    uint32_t word;
    memcpy(&word, &v, 4);
    word = simt::current()->exchange(meeting, word, argument, line);
    memcpy(&v, &word, 4);
    return v;
}
template <class T>
STRATA_INLINE T shuffle_xor(T v, int mask, int line = __builtin_LINE()) {
    return exchanged(Meeting::shuffle_xor, v, mask, line);
}
template <class T>
STRATA_INLINE T shuffle(T v, int source, int line = __builtin_LINE()) {
    return exchanged(Meeting::shuffle, v, source, line);
}
STRATA_INLINE uint32_t ballot(bool is, int line = __builtin_LINE()) {
    return simt::current()->exchange(Meeting::ballot, is, 0, line);
}
STRATA_INLINE bool any_of(bool is, int line = __builtin_LINE()) { return ballot(is, line) != 0; }

STRATA_INLINE float fma(float a, float b, float c) { return fmaf(a, b, c); }
STRATA_INLINE float square_root(float x) { return sqrtf(x); }
STRATA_INLINE int32_t dot4(int32_t a, int32_t b, int32_t c) {
    for (int i = 0; i < 32; i += 8) c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
    return c;
}

// Threads of the process other than this one may answer through these: hence real atomics.
STRATA_INLINE int32_t atomic_add(int32_t* p, int32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
STRATA_INLINE int32_t atomic_max(int32_t* p, int32_t v) {
    const int32_t old = *p;
    *p = old > v ? old : v;
    return old;
}
template <class T>
STRATA_INLINE T load_volatile(const T* p) {
    const T value = *const_cast<const volatile T*>(p);
    simt::current()->meet(Meeting::pause, 0);  // a thread that spins lets the others of its block run
    return value;
}
template <class T>
STRATA_INLINE void store_volatile(T* p, T v) { *const_cast<volatile T*>(p) = v; }
STRATA_INLINE void fence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
STRATA_INLINE void fence_device() { std::atomic_thread_fence(std::memory_order_seq_cst); }
STRATA_INLINE void prefetch(const void*) {}
STRATA_INLINE void touch(const void*) {}
STRATA_INLINE void start_next() {}
STRATA_INLINE void after_previous() {}

}  // namespace strata::STRATA_ISA
