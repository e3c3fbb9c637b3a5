// One row of a weight into the group layout (products.h) or into float32, for every format.
#include <string.h>

#include "blocks.h"
#include "products.h"
#include "products_few.h"
#include "products_few_floats.h"
#include "products_group.h"

namespace strata::STRATA_ISA {
namespace {

template <class F>
void codes_of(const WeightView& weight, int64_t row, uint8_t* codes, float* scales, float* minima) {
    constexpr int group_values = 16 * F::sub, blocks = group_values / F::block;
    const int64_t count = weight.cols / F::block;
    const uint8_t* b = weight.data + row * count * F::bytes;
    float unused[16];
    int64_t block = 0;
    for (; block + blocks <= count; block += blocks) {
        decode_group<F>(b, codes, scales, F::minima ? minima : unused);
        b += blocks * F::bytes, codes += group_values, scales += 16;
        if (F::minima) minima += 16;
    }
    if (block < count) {  // blocks of zeros fill the last group: finite scales, which meet activations that are 0
        uint8_t filled[blocks * F::bytes] = {};
        memcpy(filled, b, static_cast<size_t>(count - block) * F::bytes);
        decode_group<F>(filled, codes, scales, F::minima ? minima : unused);
    }
}

// Bits of the float32 value of each float8_e4m3fn byte. A constant: an initialiser that runs when the module loads
// would run this variant's instructions on a CPU that may lack them.
struct E4m3Table {
    uint32_t bits[256];
    constexpr E4m3Table() : bits() {
        for (uint32_t code = 0; code < 256; ++code) {
            const uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
            const uint32_t top = mantissa > 3 ? 2 : mantissa > 1 ? 1 : 0;
            uint32_t magnitude = (exponent + 120) << 23 | mantissa << 20;
            if (exponent == 0) magnitude = mantissa ? (118 + top) << 23 | (mantissa << (23 - top) & 0x7fffff) : 0;
            if ((code & 127) == 127) magnitude = 0x7fc00000u;
            bits[code] = (code & 128) << 24 | magnitude;
        }
    }
};
constexpr E4m3Table e4m3;

// The scales of NVFP4_PAIRS lie apart: E4M3 bytes [rows, cols / 16].
void pair_codes(const WeightView& weight, int64_t row, uint8_t* codes, float* scales, float* minima) {
    codes_of<NVFP4_PAIRS>(weight, row, codes, scales, minima);
    const int64_t count = weight.cols / 16;
    for (int64_t s = 0; s < count; ++s) scales[s] = 0.5f * float_of_bits(e4m3.bits[weight.scales[row * count + s]]);
}

template <class F, bool pairs = false>
void floats_of(const WeightView& weight, int64_t row, float* values) {
    const int64_t count = weight.cols / F::block;
    const uint8_t* b = weight.data + row * count * F::bytes;
    constexpr int subs = F::block / F::sub;
    for (int64_t block = 0; block < count; ++block, b += F::bytes, values += F::block) {
        uint8_t codes[F::block];
        float scale[subs], minimum[subs];
        F::decode(b, codes, scale, minimum);
        if (pairs)
            for (int s = 0; s < subs; ++s)
                scale[s] = 0.5f * e4m3_to_float(weight.scales[(row * count + block) * subs + s]);
        for (int i = 0; i < F::block; ++i) {
            const float value = static_cast<float>(codes[i] - F::offset) * scale[i / F::sub];
            values[i] = F::minima ? value - minimum[i / F::sub] : value;
        }
    }
}

void f32(const WeightView& weight, int64_t row, float* values) {
    memcpy(values, weight.data + row * weight.cols * 4, static_cast<size_t>(weight.cols) * 4);
}

void f16(const WeightView& weight, int64_t row, float* values) {
    const uint8_t* b = weight.data + row * weight.cols * 2;
    int64_t i = 0;
#if STRATA_AVX2
    for (; i + 8 <= weight.cols; i += 8)
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 2 * i))));
#endif
    for (; i < weight.cols; ++i) values[i] = half_to_float(read16(b + 2 * i));
}

void bf16(const WeightView& weight, int64_t row, float* values) {
    const uint8_t* b = weight.data + row * weight.cols * 2;
    for (int64_t i = 0; i < weight.cols; ++i) {
        uint16_t half;
        memcpy(&half, b + 2 * i, 2);
        values[i] = float_of_bits(static_cast<uint32_t>(half) << 16);
    }
}

void fp8(const WeightView& weight, int64_t row, float* values) {
    const uint8_t* b = weight.data + row * weight.cols;
    for (int64_t i = 0; i < weight.cols; ++i) values[i] = float_of_bits(e4m3.bits[b[i]]);
}

void fp8_block(const WeightView& weight, int64_t row, float* values) {
    const int64_t across = (weight.cols + 127) / 128;
    fp8(weight, row, values);
    for (int64_t block = 0; block < across; ++block) {
        float scale;
        memcpy(&scale, weight.scales + 4 * (row / 128 * across + block), 4);
        const int64_t end = block + 1 < across ? 128 * (block + 1) : weight.cols;
        for (int64_t i = 128 * block; i < end; ++i) values[i] *= scale;
    }
}

#if STRATA_VECTOR
template <class F>
constexpr auto few = multiply_few<F>;
#else
template <class F>
constexpr void (*few)(const FewRows&) = nullptr;
#endif

template <class F>
constexpr Format coded(const char* name) {
    return {name, F::block, F::bytes, F::sub, F::offset, F::minima, codes_of<F>, floats_of<F>, few<F>};
}

constexpr Format plain(const char* name, int bytes, void (*floats)(const WeightView&, int64_t, float*),
                       [[maybe_unused]] void (*few)(const FewRows&)) {
#if STRATA_VECTOR
    return {name, 1, bytes, 0, 0, false, nullptr, floats, few};
#else
    return {name, 1, bytes, 0, 0, false, nullptr, floats, nullptr};
#endif
}

}  // namespace

extern const Format formats[format_count];
constinit const Format formats[format_count] = {
    plain("F32", 4, f32, few_f32),
    plain("F16", 2, f16, few_f16),
    plain("BF16", 2, bf16, few_bf16),
    plain("FP8", 1, fp8, few_e4m3),
    plain("FP8_BLOCK", 1, fp8_block, few_e4m3_blocks),
    coded<Q4_0>("Q4_0"),
    coded<Q4_1>("Q4_1"),
    coded<Q5_0>("Q5_0"),
    coded<Q5_1>("Q5_1"),
    coded<Q8_0>("Q8_0"),
    coded<Q2_0>("Q2_0"),
    coded<Q2_K>("Q2_K"),
    coded<Q3_K>("Q3_K"),
    coded<Q4_K>("Q4_K"),
    coded<Q5_K>("Q5_K"),
    coded<Q6_K>("Q6_K"),
    coded<IQ1_S>("IQ1_S"),
    coded<IQ1_M>("IQ1_M"),
    coded<IQ2_XXS>("IQ2_XXS"),
    coded<IQ2_XS>("IQ2_XS"),
    coded<IQ2_S>("IQ2_S"),
    coded<IQ3_XXS>("IQ3_XXS"),
    coded<IQ3_S>("IQ3_S"),
    coded<IQ4_NL>("IQ4_NL"),
    coded<IQ4_XS>("IQ4_XS"),
    coded<MXFP4>("MXFP4"),
    coded<NVFP4>("NVFP4"),
    coded<TQ1_0>("TQ1_0"),
    coded<TQ2_0>("TQ2_0"),
    {"NVFP4_PAIRS", NVFP4_PAIRS::block, NVFP4_PAIRS::bytes, NVFP4_PAIRS::sub, NVFP4_PAIRS::offset, false, pair_codes,
     floats_of<NVFP4_PAIRS, true>, nullptr},
};

}  // namespace strata::STRATA_ISA
