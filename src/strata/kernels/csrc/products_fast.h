// Decoders of one whole group (16 sub-blocks) straight into the group layout, for the formats that models use most.
// Each equals its block decoder in blocks.h to the bit; products_group.h falls back on that one for the others.
//
// A decoder has one of two forms. In memory: decode(b, codes, scale, minimum) writes the group. In registers: codes(b,
// emit) calls emit(step, Bytes64) once for each step of the layout, in any order, and scales(b) and minima(b) return 16
// floats; the products of few rows use the codes as they come, and decode() stores them. Neither form reads outside of
// the group's bytes.
#pragma once

#include <string.h>

#include "blocks_k.h"
#include "blocks_legacy.h"
#include "vector.h"

namespace strata::STRATA_ISA {

template <class F>
struct FastGroup {
    static constexpr bool exists = false, in_registers = false;
};

}  // namespace strata::STRATA_ISA

#if STRATA_VECTOR

namespace strata::STRATA_ISA {

// The fp16 numbers at `b`, one per `stride` bytes, each for `shared` sub-blocks, as float32.
template <int stride, int shared = 1>
static inline Floats16 strided_halves(const uint8_t* b) {
    auto half = [&](int s) { return static_cast<short>(read16(b + s / shared * stride)); };
    auto eight = [&](int i) {
        return _mm_setr_epi16(half(i), half(i + 1), half(i + 2), half(i + 3), half(i + 4), half(i + 5), half(i + 6),
                              half(i + 7));
    };
    return from_halves(eight(0), eight(8));
}

}  // namespace strata::STRATA_ISA

#include "products_unpack256.h"
#include "products_unpack512.h"

namespace strata::STRATA_ISA {

// The base of a decoder in registers.
template <class F>
struct RegisterGroup {
    static constexpr bool exists = true, in_registers = true;
    static void decode(const uint8_t* b, uint8_t* codes, float* scale, float* minimum) {
        FastGroup<F>::codes(b, [&](int step, Bytes64 values) { store(codes + 64 * step, values); });
        store(scale, FastGroup<F>::scales(b));
        if constexpr (F::minima) store(minimum, FastGroup<F>::minima(b));
    }
};

// Tables of 16 signed values, with their format's offset.
struct OffsetTable {
    alignas(16) uint8_t code[16];
    constexpr OffsetTable(const int8_t* values, int offset) : code() {
        for (int i = 0; i < 16; ++i) code[i] = static_cast<uint8_t>(values[i] + offset);
    }
};
static constexpr OffsetTable non_linear_codes(non_linear, 128), e2m1_codes(e2m1_doubled, 12);

// Nibbles as they are.
struct Nibbles {
    Bytes64 low(Bytes64 x) const { return x & bytes_of(15); }
    Bytes64 high(Bytes64 x) const { return right<4>(x) & bytes_of(15); }
};

// 32 values in 16 bytes, the low nibbles first: the steps of a word of packed bytes.
template <class Map, class Emit>
static inline auto both_nibbles(Map map, Emit emit) {
    return [=](int step, Bytes64 packed) {
        emit(step, map.low(packed));
        emit(4 + step, map.high(packed));
    };
}

template <>
struct FastGroup<Q4_0> : RegisterGroup<Q4_0> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_strided<18, 2>(b, both_nibbles(Nibbles(), emit));
    }
    static Floats16 scales(const uint8_t* b) { return near_halves<18>(b); }
};

template <>
struct FastGroup<Q4_1> : RegisterGroup<Q4_1> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_strided<20, 4>(b, both_nibbles(Nibbles(), emit));
    }
    static Floats16 scales(const uint8_t* b) { return near_halves<20>(b); }
    static Floats16 minima(const uint8_t* b) { return -strided_halves<20>(b + 2); }
};

// Blocks of 32 values in 5 bits: at `high` four bytes with a bit per value, then 16 bytes of nibbles.
template <int stride, int high, class Emit>
static inline void emit_five_bits(const uint8_t* b, Emit emit) {
    const Bytes64 fifth = words16([&](int s) { return static_cast<int>(read32(b + stride * s + high)); });
    auto with_fifth = [&](int step, Bytes64 x) { emit(step, x | four_bits<4>(fifth, step)); };
    emit_strided<stride, high + 4>(b, both_nibbles(Nibbles(), with_fifth));
}

template <>
struct FastGroup<Q5_0> : RegisterGroup<Q5_0> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_five_bits<22, 2>(b, emit);
    }
    static Floats16 scales(const uint8_t* b) { return strided_halves<22>(b); }
};

template <>
struct FastGroup<Q5_1> : RegisterGroup<Q5_1> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_five_bits<24, 4>(b, emit);
    }
    static Floats16 scales(const uint8_t* b) { return strided_halves<24>(b); }
    static Floats16 minima(const uint8_t* b) { return -strided_halves<24>(b + 2); }
};

template <>
struct FastGroup<IQ4_NL> : RegisterGroup<IQ4_NL> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_strided<18, 2>(b, both_nibbles(NibbleTable(non_linear_codes.code), emit));
    }
    static Floats16 scales(const uint8_t* b) { return near_halves<18>(b); }
};

template <>
struct FastGroup<MXFP4> : RegisterGroup<MXFP4> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_strided<17, 1>(b, both_nibbles(NibbleTable(e2m1_codes.code), emit));
    }
    static Floats16 scales(const uint8_t* b) { return exponents17(b); }
};

template <>
struct FastGroup<IQ4_XS> : RegisterGroup<IQ4_XS> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_adjoined(b + 8, b + 136 + 8, both_nibbles(NibbleTable(non_linear_codes.code), emit));
    }
    static Floats16 scales(const uint8_t* b) {
        const __m128i small = _mm_sub_epi8(bytes16(small_scales(b), small_scales(b + 136)), _mm_set1_epi8(32));
        return scaled16(small, half_to_float(read16(b)), half_to_float(read16(b + 136)));
    }

    // Eight scales of 6 bits as bytes: nibbles of 4 bytes, and two more bits each of a 16-bit word.
    static uint64_t small_scales(const uint8_t* block) {
        uint64_t low = read32(block + 4), high = read16(block + 2);
        low = (low | low << 16) & 0x0000ffff0000ffffu;
        low = (low | low << 8) & 0x00ff00ff00ff00ffu;
        low = (low | low << 4) & 0x0f0f0f0f0f0f0f0fu;
        high = (high | high << 24) & 0x000000ff000000ffu;
        high = (high | high << 12) & 0x000f000f000f000fu;
        high = (high | high << 6) & 0x0303030303030303u;
        return low | high << 4;
    }
};

template <>
struct FastGroup<Q8_0> : RegisterGroup<Q8_0> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        const Bytes64 flip = bytes_of(128);
        auto flipped = [&](int step, Bytes64 x) { emit(step, x ^ flip); };
        for (int h = 0; h < 2; ++h) {
            auto vector = [&](int k) {
                const uint8_t* p = b + 34 * k + 2 + 16 * h;
                return lanes(p, p + 4 * 34, p + 8 * 34, p + 12 * 34);
            };
            emit_steps(flipped, 4 * h, vector(0), vector(1), vector(2), vector(3));
        }
    }
    static Floats16 scales(const uint8_t* b) { return strided_halves<34>(b); }
};

// Q4_K and Q5_K.
template <class F>
struct ChunkGroup : RegisterGroup<F> {
    static Floats16 scales(const uint8_t* b) { return KScales(b, b + F::bytes).scales(); }
    static Floats16 minima(const uint8_t* b) { return KScales(b, b + F::bytes).minima(); }
};

template <>
struct FastGroup<Q4_K> : ChunkGroup<Q4_K> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_chunks(b + 16, b + 144 + 16, emit);
    }
};

template <>
struct FastGroup<Q5_K> : ChunkGroup<Q5_K> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        const ChunkFifths fifths(b + 16, b + 176 + 16);
        emit_chunks(b + 48, b + 176 + 48, [&](int step, Bytes64 x) { emit(step, fifths.add(step, x)); });
    }
};

static inline __m128i load16(const uint8_t* b) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)); }

template <>
struct FastGroup<Q2_K> : RegisterGroup<Q2_K> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_crumbs(b + 16, emit);
    }
    static Floats16 scales(const uint8_t* b) {
        return every_half(b + 80) * small_floats(_mm_and_si128(load16(b), _mm_set1_epi8(15)));
    }
    static Floats16 minima(const uint8_t* b) {
        return every_half(b + 82) * small_floats(_mm_and_si128(_mm_srli_epi16(load16(b), 4), _mm_set1_epi8(15)));
    }
};

// Each block's scale for its eight sub-blocks.
template <int bytes>
static inline Floats16 two_halves(const uint8_t* b) {
    return two_floats(half_to_float(read16(b)), half_to_float(read16(b + bytes)));
}

// Sub-block 4 h + g of a block is bit pair g of 32 bytes, so lanes of half h of two blocks, shifted, are all of a
// group.
template <>
struct FastGroup<TQ2_0> : RegisterGroup<TQ2_0> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        const Bytes64 mask = bytes_of(3);
        for (int part = 0; part < 2; ++part, b += 16) {
            const Bytes64 packed = lanes(b, b + 32, b + 66, b + 66 + 32);
            emit_steps(emit, 4 * part, packed & mask, right<2>(packed) & mask, right<4>(packed) & mask,
                       right<6>(packed) & mask);
        }
    }
    static Floats16 scales(const uint8_t* b) { return two_halves<66>(b + 64); }
};

// Digits of base 3: digit n of a byte x is the integer part of 3 y / 256 with y = x * 3^n, without its carries. Of a
// block, sub-blocks 0 .. 4 are the digits of 32 bytes, 5, 6 and half of 7 those of 16, the rest those of 4.
template <>
struct FastGroup<TQ1_0> : RegisterGroup<TQ1_0> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        const uint8_t* next = b + TQ1_0::bytes;
        const Bytes64 mid = lanes(b + 32, b + 32, next + 32, next + 32), odd = odd_lanes();
        Bytes64 digits = mid;
        for (int part = 0; part < 2; ++part) {
            const uint8_t *p = b + 16 * part, *q = next + 16 * part;
            const Bytes64 zeroth = lanes(p, p, q, q), first = tripled(zeroth), second = tripled(first);
            const Bytes64 third = tripled(second), fourth = tripled(third), later = tripled(tripled(digits));
            const Bytes64 last = part ? ends(b, next) : tripled(tripled(later));
            emit_steps(emit, 4 * part, thirds(zeroth ^ ((zeroth ^ fourth) & odd)),
                       thirds(first ^ ((first ^ digits) & odd)), thirds(second ^ ((second ^ later) & odd)),
                       thirds(third ^ ((third ^ last) & odd)));
            digits = tripled(digits);
        }
    }
    static Floats16 scales(const uint8_t* b) { return two_halves<54>(b + 52); }

private:
    static Bytes64 odd_lanes() {
        return words16([](int s) { return s / 4 % 2 ? -1 : 0; });
    }
    // The last four bytes of both blocks, times 1, 3, 9 and 27.
    static Bytes64 ends(const uint8_t* p, const uint8_t* q) {
        const int first = static_cast<int>(read32(p + 48)), second = static_cast<int>(read32(q + 48));
        Bytes64 times = words16([=](int s) { return s < 8 ? first : second; }), all = times;
        for (int n = 1; n < 4; ++n) {
            const Bytes64 here = words16([=](int s) { return s % 4 == n ? -1 : 0; });
            times = tripled(times);
            all = all ^ ((all ^ times) & here);
        }
        return all;
    }
};

template <>
struct FastGroup<Q3_K> : RegisterGroup<Q3_K> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_crumbs_and_bits(b + 32, b, emit);
    }
    static Floats16 scales(const uint8_t* b) {
        const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b + 96)), nibble = _mm_set1_epi8(15);
        const __m128i low = _mm_unpacklo_epi64(_mm_and_si128(packed, nibble),
                                               _mm_and_si128(_mm_srli_epi16(packed, 4), nibble));
        const __m128i word = _mm_set1_epi32(static_cast<int>(read32(b + 104)));
        const __m128i pairs = _mm_srlv_epi32(word, _mm_setr_epi32(0, 2, 4, 6));
        const __m128i high = _mm_slli_epi16(_mm_and_si128(pairs, _mm_set1_epi8(3)), 4);
        return every_half(b + 108) * small_floats(_mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32)));
    }
};

template <>
struct FastGroup<Q6_K> : RegisterGroup<Q6_K> {
    template <class Emit>
    static void codes(const uint8_t* b, Emit emit) {
        emit_nibbles_and_pairs(b, b + 128, emit);
    }
    static Floats16 scales(const uint8_t* b) { return every_half(b + 208) * small_floats(load16(b + 192)); }
};

}  // namespace strata::STRATA_ISA
#endif
