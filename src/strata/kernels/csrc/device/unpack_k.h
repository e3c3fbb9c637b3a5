// The K-quants (unpack.h): blocks of 256 with two levels of scales.
#pragma once

#include "unpack.h"

#include "../blocks_k.h"

namespace strata::STRATA_ISA {

// `count` words from byte `at`, each shifted and masked: fields of four bytes.
template <int count, class B>
STRATA_INLINE void fields(const B& b, uint32_t at, int shift, uint32_t mask, uint32_t* w) {
    words_at<count>(b, at, w);
    STRATA_UNROLL
    for (int j = 0; j < count; ++j) w[j] = w[j] >> shift & mask;
}

template <>
struct Unpack<Q2_K> : NoTable {
    STRATA_INLINE void get(const Layout<Q2_K>::Block& b, int s, const Table&, Codes<16>& c) {
        fields<4>(b, 16 + s / 8 * 32 + s % 2 * 16, s % 8 / 2 * 2, 0x03030303u, c.w);
        const uint32_t both = byte_at(b, s);
        c.scale = float_at(b, 80) * static_cast<float>(both & 15);
        c.minimum = float_at(b, 82) * static_cast<float>(both >> 4);
        c.bias = 0;
    }
};

template <>
struct Unpack<Q3_K> : NoTable {
    STRATA_INLINE void get(const Layout<Q3_K>::Block& b, int s, const Table&, Codes<16>& c) {
        uint32_t third[4];
        fields<4>(b, 32 + s / 8 * 32 + s % 2 * 16, s % 8 / 2 * 2, 0x03030303u, c.w);
        fields<4>(b, s % 2 * 16, s / 2, 0x01010101u, third);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) c.w[j] |= third[j] << 2;
        const uint32_t low = byte_at(b, 96 + s % 8) >> s / 8 * 4 & 15, high = byte_at(b, 104 + s % 4) >> s / 4 * 2 & 3;
        c.scale = float_at(b, 108) * static_cast<float>(static_cast<int>(low | high << 4) - 32);
        c.bias = 4;
    }
};

// The six-bit scale and minimum of sub-block s of Q4_K and Q5_K, twelve bytes from byte 4 on.
template <class B>
STRATA_INLINE void k_scale(const B& b, int s, float& scale, float& minimum) {
    uint32_t x[3];
    words_at<3>(b, 4, x);
    const int shift = s % 4 * 8;
    const uint32_t first = x[0] >> shift, second = x[1] >> shift, third = x[2] >> shift;
    const uint32_t code = s < 4 ? first & 63 : (third & 15) | (first >> 6 & 3) << 4;
    const uint32_t least = s < 4 ? second & 63 : (third >> 4 & 15) | (second >> 6 & 3) << 4;
    scale = float_at(b, 0) * static_cast<float>(code);
    minimum = float_at(b, 2) * static_cast<float>(least);
}

template <>
struct Unpack<Q4_K> : NoTable {
    STRATA_INLINE void get(const Layout<Q4_K>::Block& b, int s, const Table&, Codes<32>& c) {
        fields<8>(b, 16 + s / 2 * 32, s % 2 * 4, 0x0f0f0f0fu, c.w);
        k_scale(b, s, c.scale, c.minimum);
        c.bias = 0;
    }
};

template <>
struct Unpack<Q5_K> : NoTable {
    STRATA_INLINE void get(const Layout<Q5_K>::Block& b, int s, const Table&, Codes<32>& c) {
        uint32_t fifth[8];
        fields<8>(b, 48 + s / 2 * 32, s % 2 * 4, 0x0f0f0f0fu, c.w);
        fields<8>(b, 16, s, 0x01010101u, fifth);
        STRATA_UNROLL
        for (int j = 0; j < 8; ++j) c.w[j] |= fifth[j] << 4;
        k_scale(b, s, c.scale, c.minimum);
        c.bias = 0;
    }
};

template <>
struct Unpack<Q6_K> : NoTable {
    STRATA_INLINE void get(const Layout<Q6_K>::Block& b, int s, const Table&, Codes<16>& c) {
        uint32_t high[4];
        fields<4>(b, s / 8 * 64 + s % 4 * 16, s % 8 / 4 * 4, 0x0f0f0f0fu, c.w);
        fields<4>(b, 128 + s / 8 * 32 + s % 2 * 16, s % 8 / 2 * 2, 0x03030303u, high);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) c.w[j] |= high[j] << 4;
        c.scale = float_at(b, 208) * static_cast<float>(static_cast<int8_t>(byte_at(b, 192 + s)));
        c.bias = 32;
    }
};

}  // namespace strata::STRATA_ISA
