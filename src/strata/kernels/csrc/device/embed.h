// Rows of an embedding table; bits as embed/naive.py.
//
// Formats of codes: a thread decodes a block of a row. Floats: a thread converts a value. A shard holds the table's
// rows from `first` on; ids of other rows are some other launch's.
#pragma once

#include "device.h"

#include "../blocks.h"

namespace strata::STRATA_ISA {

// ids [tokens], the planes of a shard of `rows` rows, its factor, out [tokens, cols].
struct Table {
    const int64_t* ids;
    const uint8_t* data;
    const uint8_t* scales;
    float factor;
    float* out;
    int64_t first, rows, cols;
};

STRATA_INLINE float times_factor(float value, float factor) { return factor == 1.0f ? value : value * factor; }

// A token's row in this shard, or -1.
STRATA_INLINE int64_t row_in(const Table& table, int64_t token) {
    const int64_t row = table.ids[token] - table.first;
    return row >= 0 && row < table.rows ? row : -1;
}

template <class F, bool scales_apart>
STRATA_INLINE void embed_codes(const Table& table, int64_t count) {
    constexpr int subs = F::block / F::sub;
    const int64_t number = element(), blocks = table.cols / F::block;
    if (number >= count) return;
    const int64_t row = row_in(table, number / blocks), block = number % blocks;
    if (row < 0) return;
    uint8_t codes[F::block];
    float scale[subs], minimum[subs];
    F::decode(table.data + (row * blocks + block) * F::bytes, codes, scale, minimum);
    if constexpr (scales_apart)
        for (int s = 0; s < subs; ++s)
            scale[s] = 0.5f * e4m3_to_float(table.scales[(row * blocks + block) * subs + s]);
    float* to = table.out + number * F::block;
    for (int i = 0; i < F::block; ++i) {
        float value = static_cast<float>(codes[i] - F::offset) * scale[i / F::sub];
        if constexpr (F::minima) value = value - minimum[i / F::sub];
        to[i] = times_factor(value, table.factor);
    }
}

// One value of a format that is no code: where it lies, and (row, column).
STRATA_INLINE float f32_at(const Table& table, int64_t at, int64_t, int64_t) {
    return float_of_bits(read32(table.data + 4 * at));
}
STRATA_INLINE float f16_at(const Table& table, int64_t at, int64_t, int64_t) {
    return half_to_float(read16(table.data + 2 * at));
}
STRATA_INLINE float bf16_at(const Table& table, int64_t at, int64_t, int64_t) {
    return float_of_bits(read16(table.data + 2 * at) << 16);
}
STRATA_INLINE float fp8_at(const Table& table, int64_t at, int64_t, int64_t) { return e4m3_to_float(table.data[at]); }
STRATA_INLINE float fp8_block_at(const Table& table, int64_t at, int64_t row, int64_t column) {
    const int64_t across = (table.cols + 127) / 128;
    return e4m3_to_float(table.data[at]) * float_of_bits(read32(table.scales + 4 * (row / 128 * across + column / 128)));
}

template <float (*value_at)(const Table&, int64_t, int64_t, int64_t)>
STRATA_INLINE void embed_floats(const Table& table, int64_t count) {
    const int64_t number = element();
    if (number >= count) return;
    const int64_t row = row_in(table, number / table.cols), column = number % table.cols;
    if (row < 0) return;
    table.out[number] = times_factor(value_at(table, row * table.cols + column, row, column), table.factor);
}

// `count` blocks, or values, of all tokens.
#define STRATA_EMBED(format, ...)                                                                                \
    STRATA_KERNEL(embed_##format, (const int64_t* ids, const uint8_t* data, const uint8_t* scales, float factor, \
                                   float* out, int64_t count, int64_t first, int64_t rows, int64_t cols)) {      \
        __VA_ARGS__(Table{ids, data, scales, factor, out, first, rows, cols}, count);                            \
    }
#define STRATA_EMBED_CODES(format) STRATA_EMBED(format, embed_codes<format, false>)
#define STRATA_EMBED_FLOATS(format, value_at) STRATA_EMBED(format, embed_floats<value_at>)

STRATA_EMBED_FLOATS(F32, f32_at)
STRATA_EMBED_FLOATS(F16, f16_at)
STRATA_EMBED_FLOATS(BF16, bf16_at)
STRATA_EMBED_FLOATS(FP8, fp8_at)
STRATA_EMBED_FLOATS(FP8_BLOCK, fp8_block_at)
STRATA_EMBED_CODES(Q4_0)
STRATA_EMBED_CODES(Q4_1)
STRATA_EMBED_CODES(Q5_0)
STRATA_EMBED_CODES(Q5_1)
STRATA_EMBED_CODES(Q8_0)
STRATA_EMBED_CODES(Q2_0)
STRATA_EMBED_CODES(Q2_K)
STRATA_EMBED_CODES(Q3_K)
STRATA_EMBED_CODES(Q4_K)
STRATA_EMBED_CODES(Q5_K)
STRATA_EMBED_CODES(Q6_K)
STRATA_EMBED_CODES(IQ1_S)
STRATA_EMBED_CODES(IQ1_M)
STRATA_EMBED_CODES(IQ2_XXS)
STRATA_EMBED_CODES(IQ2_XS)
STRATA_EMBED_CODES(IQ2_S)
STRATA_EMBED_CODES(IQ3_XXS)
STRATA_EMBED_CODES(IQ3_S)
STRATA_EMBED_CODES(IQ4_NL)
STRATA_EMBED_CODES(IQ4_XS)
STRATA_EMBED_CODES(MXFP4)
STRATA_EMBED_CODES(NVFP4)
STRATA_EMBED_CODES(TQ1_0)
STRATA_EMBED_CODES(TQ2_0)
STRATA_EMBED(NVFP4_PAIRS, embed_codes<NVFP4_PAIRS, true>)

#undef STRATA_EMBED_FLOATS
#undef STRATA_EMBED_CODES
#undef STRATA_EMBED

}  // namespace strata::STRATA_ISA
