// The dialect on a GPU: NVIDIA's compiler or AMD's.
#pragma once

#include <stdint.h>

#if defined(__CUDACC_RTC__)
#define __builtin_memcpy memcpy  // the host compilers' name of it, which blocks.h uses
#endif

#define STRATA_INLINE static __device__ __forceinline__
#define STRATA_TABLE static __device__ const

#define STRATA_KERNEL(name, params) extern "C" __global__ void name params
#define STRATA_KERNEL_OF(threads, name, params) extern "C" __global__ __launch_bounds__(threads) void name params
#define STRATA_KERNEL_UP_TO(threads, name, params) STRATA_KERNEL_OF(threads, name, params)
// Not told so, NVIDIA's compiler leaves registers for two blocks of 512 threads, and spills.
#define STRATA_KERNEL_BESIDE(threads, blocks, name, params) \
    extern "C" __global__ __launch_bounds__(threads, blocks) void name params
#define SHARED(type, name, count) __shared__ __attribute__((aligned(16))) type name[count]
#define DYNAMIC_SHARED(type, name)                                                       \
    extern __shared__ __attribute__((aligned(16))) unsigned char strata_dynamic_shared[]; \
    type* const name = reinterpret_cast<type*>(strata_dynamic_shared)

namespace strata::STRATA_ISA {

STRATA_INLINE int thread_x() { return static_cast<int>(threadIdx.x); }
STRATA_INLINE int block_x() { return static_cast<int>(blockIdx.x); }
STRATA_INLINE int block_y() { return static_cast<int>(blockIdx.y); }
STRATA_INLINE int block_z() { return static_cast<int>(blockIdx.z); }
STRATA_INLINE int block_size() { return static_cast<int>(blockDim.x); }
STRATA_INLINE int grid_x() { return static_cast<int>(gridDim.x); }
STRATA_INLINE void barrier() { __syncthreads(); }

STRATA_INLINE float fma(float a, float b, float c) { return fmaf(a, b, c); }
STRATA_INLINE float square_root(float x) { return sqrtf(x); }

STRATA_INLINE int32_t atomic_add(int32_t* p, int32_t v) { return atomicAdd(p, v); }
STRATA_INLINE int32_t atomic_max(int32_t* p, int32_t v) { return atomicMax(p, v); }
STRATA_INLINE void fence_system() { __threadfence_system(); }
STRATA_INLINE void fence_device() { __threadfence(); }

template <class T>
STRATA_INLINE T load_volatile(const T* p) { return *const_cast<const volatile T*>(p); }
template <class T>
STRATA_INLINE void store_volatile(T* p, T v) { *const_cast<volatile T*>(p) = v; }

#if defined(__HIPCC_RTC__) || defined(__HIPCC__)

// A wave holds one group of 32 or two: shuffles of width 32 stay within a group.
STRATA_INLINE void sync_warp() {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
template <class T>
STRATA_INLINE T shuffle_xor(T v, int mask) { return __shfl_xor(v, mask, 32); }
template <class T>
STRATA_INLINE T shuffle(T v, int source) { return __shfl(v, source, 32); }
STRATA_INLINE uint32_t ballot(bool is) {
    const unsigned long long all = __ballot(is);
    return static_cast<uint32_t>(warpSize == 64 ? all >> (threadIdx.x & 32) : all);
}
STRATA_INLINE int32_t dot4(int32_t a, int32_t b, int32_t c) {
    for (int i = 0; i < 32; i += 8) c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
    return c;
}
STRATA_INLINE void prefetch(const void*) {}
STRATA_INLINE void touch(const void*) {}
STRATA_INLINE void start_next() {}
STRATA_INLINE void after_previous() {}

#else

STRATA_INLINE void sync_warp() { __syncwarp(); }
template <class T>
STRATA_INLINE T shuffle_xor(T v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
template <class T>
STRATA_INLINE T shuffle(T v, int source) { return __shfl_sync(0xffffffffu, v, source); }
STRATA_INLINE uint32_t ballot(bool is) { return __ballot_sync(0xffffffffu, is); }
STRATA_INLINE int32_t dot4(int32_t a, int32_t b, int32_t c) { return __dp4a(a, b, c); }
#if __CUDA_ARCH__ >= 900
STRATA_INLINE void start_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
STRATA_INLINE void after_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
STRATA_INLINE void start_next() {}
STRATA_INLINE void after_previous() {}
#endif
// Brings a line to this processor's first-level cache.
STRATA_INLINE void touch(const void* p) {
    uint32_t unused;
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(unused) : "l"(p));
}
STRATA_INLINE void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

#if __CUDA_ARCH__ >= 800  // one instruction
#define STRATA_LARGEST_OF_LANES(v) __reduce_max_sync(0xffffffffu, v)
#endif

// blocks.h has it bit by bit; this is one instruction. Exact but for the bits of a NaN, which no rule fixes.
#define STRATA_HALF_TO_FLOAT(half)                                                     \
    float value;                                                                       \
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(half))); \
    return value

#endif

STRATA_INLINE bool any_of(bool is) { return ballot(is) != 0; }

}  // namespace strata::STRATA_ISA
