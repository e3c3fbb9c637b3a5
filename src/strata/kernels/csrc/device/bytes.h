// Bytes of a weight as they lie in shared memory, and tricks on four bytes in a word.
#pragma once

#include "device.h"

#include "../numbers.h"

#if defined(__CUDA_ARCH__) || defined(__HIPCC_RTC__) || defined(__HIPCC__)
#define STRATA_UNROLL _Pragma("unroll")
#define STRATA_ROLL _Pragma("unroll 1")
#define STRATA_METHOD __device__ __forceinline__
#else
#define STRATA_UNROLL
#define STRATA_ROLL
#define STRATA_METHOD inline
#endif

namespace strata::STRATA_ISA {

// v, which the compiler then keeps in a register: it would rather compute it again at each use. All lanes take part.
STRATA_INLINE int32_t keep(int32_t v) { return shuffle(v, lane()); }

#if defined(__CUDA_ARCH__)
// Byte i of the result is byte selector >> 4 i & 15, below 8, of the eight bytes of b:a.
STRATA_INLINE uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
    uint32_t out;  // __byte_perm would mask the selector first
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
    return out;
}
// The same, and where a nibble of the selector has its highest bit the sign of that byte, eight times.
STRATA_INLINE uint32_t pick_or_sign(uint32_t a, uint32_t b, uint32_t selector) { return pick_bytes(a, b, selector); }
// Byte i of a, and above it byte i of b, whose bytes are below 128: a selector of 12 repeats the sign of one of those,
// 0.
STRATA_INLINE uint32_t byte_pair(uint32_t a, uint32_t b, int i) {
    return pick_bytes(a, b, static_cast<uint32_t>(0xcc40 | i << 4 | i));
}
// v, which the compiler then computes at this place, and not again at each use in another way.
template <class T>
STRATA_INLINE T settled(T v) {
    if constexpr (sizeof(T) == 8) asm volatile("" : "+l"(v));
    else asm volatile("" : "+r"(v));
    return v;
}
// a where the mask has ones, b elsewhere: one instruction, which the compiler would take apart.
STRATA_INLINE uint32_t choose_bits(uint32_t mask, uint32_t a, uint32_t b) {
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(out) : "r"(mask), "r"(a), "r"(b));
    return out;
}
// The low word of high:low >> bits, bits < 32.
STRATA_INLINE uint32_t shift_pair(uint32_t low, uint32_t high, uint32_t bits) {
    return __funnelshift_r(low, high, bits);
}
#else
template <class T>
STRATA_INLINE T settled(T v) { return v; }
STRATA_INLINE uint32_t choose_bits(uint32_t mask, uint32_t a, uint32_t b) { return (mask & a) | (~mask & b); }
STRATA_INLINE uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) out |= static_cast<uint32_t>(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return out;
}
STRATA_INLINE uint32_t pick_or_sign(uint32_t a, uint32_t b, uint32_t selector) {
    const uint32_t bytes = pick_bytes(a, b, selector);
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32_t byte = bytes >> 8 * i & 255;
        out |= (selector >> 4 * i & 8 ? (byte >> 7) * 255 : byte) << 8 * i;
    }
    return out;
}
STRATA_INLINE uint32_t byte_pair(uint32_t a, uint32_t b, int i) { return (a >> 8 * i & 255) | (b >> 8 * i & 255) << 8; }
STRATA_INLINE uint32_t shift_pair(uint32_t low, uint32_t high, uint32_t bits) {
    return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> bits);
}
#endif

// An integer below 2^23, without the slow instruction for any integer.
STRATA_INLINE float float_of_small(uint32_t v) { return float_of_bits(0x4b000000u | v) - 8388608.0f; }

// Four sums of bytes, none carrying into the next.
STRATA_INLINE uint32_t add_bytes(uint32_t a, uint32_t b) {
    return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}

// Bit i of a nibble in bit 0 of byte i.
STRATA_INLINE uint32_t spread_bits(uint32_t nibble) { return nibble * 0x00204081u & 0x01010101u; }

// Two-bit field i of a byte in byte i.
STRATA_INLINE uint32_t spread_pairs(uint32_t byte) {
    const uint32_t two = byte | byte << 6;
    return (two | two << 12) & 0x03030303u;
}

// 255 in byte i when bit i of a nibble is set: the product has bit i at the top of byte i.
#if defined(__CUDA_ARCH__)
STRATA_INLINE uint32_t sign_mask(uint32_t nibble) {
    uint32_t out;
    asm("prmt.b32 %0, %1, %1, 0xba98;" : "=r"(out) : "r"(nibble * 0x10204080u));
    return out;
}
#else
STRATA_INLINE uint32_t sign_mask(uint32_t nibble) { return (nibble * 0x10204080u >> 7 & 0x01010101u) * 255u; }
#endif

// Bytes v, 1 .. 127, with the signs of the bits of a nibble.
STRATA_INLINE uint32_t with_signs(uint32_t v, uint32_t nibble) {
    const uint32_t mask = sign_mask(nibble);
    return (v ^ mask) + (mask & 0x01010101u);
}

// A block of a weight in shared memory: byte `at` after `words`, which is aligned to 16. `at` is a multiple of `align`.
template <int align>
struct Bytes {
    const uint32_t* words;
    uint32_t at;
};

template <int align>
STRATA_INLINE uint32_t byte_at(const Bytes<align>& b, uint32_t i) {
    return reinterpret_cast<const uint8_t*>(b.words)[b.at + i];
}

// i and the block's place are even.
template <int align>
STRATA_INLINE uint32_t half_at(const Bytes<align>& b, uint32_t i) {
    static_assert(align >= 2, "a 16-bit read needs an even address");
    return reinterpret_cast<const uint16_t*>(b.words)[(b.at + i) >> 1];
}

template <int align>
STRATA_INLINE float float_at(const Bytes<align>& b, uint32_t i) {
    return half_to_float(half_at(b, i));
}

// `count` words from byte i on. Reads the aligned words around them: up to three bytes before and four after.
template <int count, int align>
STRATA_INLINE void words_at(const Bytes<align>& b, uint32_t i, uint32_t* out) {
    const uint32_t place = b.at + i;
    const uint32_t* from = b.words + (place >> 2);
    if (align % 4 == 0) {  // and i is a multiple of 4 then
        STRATA_UNROLL
        for (int j = 0; j < count; ++j) out[j] = from[j];
        return;
    }
    const uint32_t bits = (place & 3) * 8;
    uint32_t low = from[0];
    STRATA_UNROLL
    for (int j = 0; j < count; ++j) {
        const uint32_t high = from[j + 1];
        out[j] = shift_pair(low, high, bits);
        low = high;
    }
}

// The same place with `at` below 4, `i` bytes further.
template <int align>
STRATA_INLINE Bytes<align> further(const Bytes<align>& b, uint32_t i) {
    return {b.words + ((b.at + i) >> 2), align % 4 == 0 ? 0 : (b.at + i) & 3};
}

// As words_at, where i is a multiple of 4 and b.at below 4.
template <int count, int align>
STRATA_INLINE void even_words(const Bytes<align>& b, uint32_t i, uint32_t* out) {
    const uint32_t* from = b.words + (i >> 2);
    if (align % 4 == 0) {
        STRATA_UNROLL
        for (int j = 0; j < count; ++j) out[j] = from[j];
        return;
    }
    uint32_t low = from[0];
    STRATA_UNROLL
    for (int j = 0; j < count; ++j) {
        const uint32_t high = from[j + 1];
        out[j] = shift_pair(low, high, 8 * b.at);
        low = high;
    }
}

// Sixteen signed bytes as four words.
struct Table16 {
    uint32_t word[4];
};

// The table's values for the low and the high nibbles of four bytes.
STRATA_INLINE void look_up(const Table16& table, uint32_t nibbles, uint32_t& low, uint32_t& high) {
    const uint32_t index = nibbles & 0x77777777u, upper = (nibbles & 0x88888888u) >> 1 | 0x32103210u;
    uint32_t mixed[2];  // low, high, low, high
    STRATA_UNROLL
    for (int i = 0; i < 2; ++i) {
        const uint32_t first = pick_bytes(table.word[0], table.word[1], index >> 16 * i);
        const uint32_t second = pick_bytes(table.word[2], table.word[3], index >> 16 * i);
        mixed[i] = pick_bytes(first, second, upper >> 16 * i);
    }
    low = pick_bytes(mixed[0], mixed[1], 0x6420);
    high = pick_bytes(mixed[0], mixed[1], 0x7531);
}

}  // namespace strata::STRATA_ISA
