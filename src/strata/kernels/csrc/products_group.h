// One group of a format, read by whichever decoder it has: in memory, or as the codes come.
#pragma once

#include <string.h>

#include "products_fast.h"
#include "products_fp4.h"
#include "products_grid.h"

namespace strata::STRATA_ISA {

// Codes in order -> group layout.
template <int sub>
static inline void to_group(const uint8_t* plain, uint8_t* codes) {
#if STRATA_VECTOR
    for (int part = 0; part < sub / 16; ++part) {
        auto vector = [&](int k) {
            const uint8_t* p = plain + sub * k + 16 * part;
            return lanes(p, p + 4 * sub, p + 8 * sub, p + 12 * sub);
        };
        store_steps(codes + 256 * part, vector(0), vector(1), vector(2), vector(3));
    }
#else
    for (int step = 0; step < sub / 4; ++step)
        for (int s = 0; s < 16; ++s) memcpy(codes + 64 * step + 4 * s, plain + sub * s + 4 * step, 4);
#endif
}

template <class F>
static inline void decode_group(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
    if constexpr (FastGroup<F>::exists) {
        FastGroup<F>::decode(b, codes, scale, minimum);
    } else {
        alignas(64) uint8_t plain[16 * F::sub];
        for (int i = 0; i < 16 * F::sub / F::block; ++i) {
            const int first = i * F::block / F::sub;
            F::decode(b + i * F::bytes, plain + i * F::block, scale + first, minimum + first);
        }
        to_group<F::sub>(plain, codes);
    }
}

#if STRATA_VECTOR

// A group whose codes are met step by step: emit(step, Bytes64). Formats without a decoder in registers go through
// memory.
template <class F>
class StepGroup {
public:
    explicit StepGroup(const uint8_t* b) { decode(b, codes_, scale_, minimum_); }
    template <class Emit>
    void codes(Emit emit) const {
#pragma GCC unroll 8
        for (int step = 0; step < F::sub / 4; ++step) emit(step, load64(codes_ + 64 * step));
    }
    Floats16 scales() const { return load_floats(scale_); }
    Floats16 minima() const { return load_floats(minimum_); }

private:
    __attribute__((noinline)) static void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        decode_group<F>(b, codes, scale, minimum);
    }

    alignas(64) uint8_t codes_[16 * F::sub];
    alignas(64) float scale_[16];
    alignas(64) float minimum_[16];
};

template <class F>
    requires(FastGroup<F>::in_registers)
class StepGroup<F> {
public:
    explicit StepGroup(const uint8_t* b) : b_(b) {}
    template <class Emit>
    void codes(Emit emit) const {
        FastGroup<F>::codes(b_, emit);
    }
    Floats16 scales() const { return FastGroup<F>::scales(b_); }
    Floats16 minima() const { return FastGroup<F>::minima(b_); }

private:
    const uint8_t* b_;
};

#endif

}  // namespace strata::STRATA_ISA
