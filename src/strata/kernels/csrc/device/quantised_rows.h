// Activations as the products read them. A row of K values is cut into steps of 32 sub-blocks, and a step is one
// record:
//
//     q [sub / 16][32][16]   int8: half h of the sub-block at place p in 16 bytes, so that a group reads 512 bytes at
//     once d, m, -m, 0 [32]       16 bytes by the same places: a float32, the scale of the block of 32 that the
//     sub-block lies in;
//                            the sum of the sub-block's q as int32; its negative as float32
//
// Sub-blocks of 32 values lie in order. Those of 16 lie as lanes read them that unpack four at once (products_parts.h):
// sub-block 16 p + 8 n + 2 j + h at place 8 j + 4 p + 2 n + h. Of a row's last record only the places of sub-blocks
// that there are hold something.
#pragma once

#include "bytes.h"
#include "quantise.h"

namespace strata::STRATA_ISA {

template <int sub>
struct Record {
    static constexpr int values = 32 * sub, bytes = values + 512;
};

template <int sub>
STRATA_INLINE int64_t quantised_bytes(int64_t cols) {
    return (cols + Record<sub>::values - 1) / Record<sub>::values * Record<sub>::bytes;
}

template <int sub>
struct Quantised {
    uint32_t q[sub / 4];
    float d;
    int32_t m;
    float least;
};

// The place of sub-block `index` of 32 in its record.
template <int sub>
STRATA_INLINE int place_in_record(int index) {
    return sub == 32 ? index : (index >> 1 & 3) << 3 | (index >> 4) << 2 | (index >> 3 & 1) << 1 | (index & 1);
}

// Bytes from the beginning of a row to where sub-block `index` lies; it may be below 0 when only a later one is read.
// The sub-block 32 further lies Record::bytes further.
template <int sub>
STRATA_INLINE int place_of(int index) {
    return (index >> 5) * Record<sub>::bytes + 16 * place_in_record<sub>(index & 31);
}

template <int sub>
STRATA_INLINE Quantised<sub> input(const uint8_t* place) {
    Quantised<sub> x;
    STRATA_UNROLL
    for (int h = 0; h < sub / 16; ++h) {
        const Words4 half = load16(place + 512 * h);
        STRATA_UNROLL
        for (int j = 0; j < 4; ++j) x.q[4 * h + j] = half.w[j];
    }
    const Words4 rest = load16(place + Record<sub>::values);
    x.d = float_of_bits(rest.w[0]), x.m = static_cast<int32_t>(rest.w[1]), x.least = float_of_bits(rest.w[2]);
    return x;
}

// The scale and the sum of the sub-block at `place`.
template <int sub>
STRATA_INLINE void put_scale(uint8_t* place, float d, int32_t sum) {
    const uint32_t least = bits_of_float(-static_cast<float>(sum));
    *reinterpret_cast<Words4*>(place + Record<sub>::values) = {{bits_of_float(d), static_cast<uint32_t>(sum), least, 0}};
}

// Eight lanes hold a block of 32 values, four each; the block is number `block` of a row. All lanes of a group
// take part, with blocks of their own; `row` null: they only take part. `mixed`: as mixed_line has a sub-block of 32
// values.
template <int sub, bool mixed = false>
STRATA_INLINE void put_words(uint8_t* row, int64_t block, uint32_t codes, float d) {
    int32_t sum = dot4(static_cast<int32_t>(codes), 0x01010101, 0);
    STRATA_UNROLL
    for (int mask = 1; mask < sub / 4; mask <<= 1) sum += shuffle_xor(sum, mask);
    int word = lane() % 8;
    if (mixed) {  // words i and i + 4 have values i, .. of both halves: they become words 2 i and 2 i + 1
        const uint32_t other = shuffle_xor(codes, 4);
        codes = word < 4 ? pick_bytes(codes, other, 0x5140) : pick_bytes(other, codes, 0x7362);
        word = word < 4 ? 2 * word : 2 * word - 7;
    }
    if (!row) return;
    const int within = word % (sub / 4);
    const int64_t index = block * (32 / sub) + word / (sub / 4);
    uint8_t* const place = row + index / 32 * Record<sub>::bytes + place_of<sub>(static_cast<int>(index % 32));
    *reinterpret_cast<uint32_t*>(place + 512 * (within / 4) + 4 * (within % 4)) = codes;
    if (within == 0) put_scale<sub>(place, d, sum);
}

// Half of 32 values, of which `first` and `second` are the halves, in turns: 0, 16, 1, 17, ..
STRATA_INLINE Words4 mixed_line(const Words4& first, const Words4& second, int half) {
    Words4 mixed;
    STRATA_UNROLL
    for (int i = 0; i < 2; ++i) {
        const uint32_t a = first.w[2 * half + i], b = second.w[2 * half + i];
        mixed.w[2 * i] = pick_bytes(a, b, 0x5140), mixed.w[2 * i + 1] = pick_bytes(a, b, 0x7362);
    }
    return mixed;
}

// Quantises four blocks of 32 values of a row at once, eight lanes each, into the layouts that are wanted (null: not).
STRATA_INLINE void quantise_words(const float (&x)[4], uint8_t* row32, uint8_t* row16, int64_t block) {
    float d;
    const uint32_t codes = quantise_four(x, d);
    put_words<32>(row32, block, codes, d);
    put_words<16>(row16, block, codes, d);
}

// Thread `index` of those that quantise x [rows, cols], eight lanes for each block of 32 values. All lanes of a group
// take part.
STRATA_INLINE void quantise_part(const float* x, uint8_t* by32, uint8_t* by16, int64_t rows, int64_t cols, int64_t index) {
    const int64_t first = index * 4, block = index / 8, across = cols / 32, row = block / across;
    const bool inside = row < rows;
    float v[4];
    for (int i = 0; i < 4; ++i) v[i] = inside ? x[first + i] : 0.0f;
    quantise_words(v, inside && by32 ? by32 + row * quantised_bytes<32>(cols) : nullptr,
                   inside && by16 ? by16 + row * quantised_bytes<16>(cols) : nullptr, block % across);
}

}  // namespace strata::STRATA_ISA
