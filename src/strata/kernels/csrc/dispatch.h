// How one source file is compiled per instruction set and picked at run time.
//
// CMake compiles every compute source (products_*.cpp, layers_*.cpp) once per variant with STRATA_ISA set to the
// variant's name: portable (the architecture's baseline), avx2 (AVX2, FMA, F16C), avx512 (F, BW, VL, DQ, VNNI, VBMI).
// A compute source keeps all its code in `namespace strata::STRATA_ISA` and exports one table of function pointers:
//
//     layers_example.h    struct ExampleKernels { void (*twice)(Pool&, const float* x, float* y, int64_t n); };
//                         STRATA_VARIANTS(ExampleKernels, example_kernels)
//     layers_example.cpp  namespace strata::STRATA_ISA {
//                         static void twice(...) { ... }
//                         const ExampleKernels example_kernels = {twice};
//                         }
//     layers_bind.cpp     pick_example_kernels(native.isa()).twice(native.pool(), ...)
//
// Rules for compute sources: intrinsics behind STRATA_AVX2 / STRATA_AVX512 (the avx512 variant has both); include only
// C headers, <cmath>, pool.h, memory.h and headers whose functions live in namespace STRATA_ISA. An inline function or
// template that several variants share by name (std::vector, std::sort) would be merged by the linker, and the merged
// copy could hold instructions that the running CPU lacks. A lambda inside a STRATA_ISA function is its own type, so
// Pool::parallel_for is safe.
#pragma once

#include "cpu.h"

#define STRATA_TEXT_(x) #x
#define STRATA_TEXT(x) STRATA_TEXT_(x)

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#define STRATA_AVX512 1
#endif
#if defined(__AVX2__) && defined(__FMA__)
#define STRATA_AVX2 1
#endif

// Declares the table `name` of type `Table` in every variant, and pick_<name>(Isa).
#if defined(__x86_64__)
#define STRATA_VARIANTS(Table, name)                   \
    namespace portable { extern const Table name; }    \
    namespace avx2 { extern const Table name; }        \
    namespace avx512 { extern const Table name; }      \
    inline const Table& pick_##name(Isa isa) {         \
        switch (isa) {                                 \
            case Isa::avx512: return avx512::name;     \
            case Isa::avx2: return avx2::name;         \
            default: return portable::name;            \
        }                                              \
    }
#else
#define STRATA_VARIANTS(Table, name)                   \
    namespace portable { extern const Table name; }    \
    inline const Table& pick_##name(Isa) { return portable::name; }
#endif
