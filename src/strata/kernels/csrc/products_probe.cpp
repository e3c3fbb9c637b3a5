#include "products_probe.h"

#include "products_grid.h"
#include "products_rows.h"

namespace strata::STRATA_ISA {
namespace {

constexpr int64_t chunk = 64;

template <class Body>
void over_rows(Context context, int64_t rows, Body body) {
    context.pool.parallel_for(static_cast<int>((rows + chunk - 1) / chunk), [&](int index, int) {
        const int64_t end = (index + 1) * chunk < rows ? (index + 1) * chunk : rows;
        for (int64_t row = index * chunk; row < end; ++row) body(row);
    });
}

void read(Context context, const WeightView& weight, const float*, float* y) {
    const Format& format = formats[weight.format];
    const int64_t row_bytes = weight.cols / format.block * format.bytes;
    over_rows(context, weight.rows, [&](int64_t row) {
        const uint8_t* b = weight.data + row * row_bytes;
        // Eight independent words, so that the compiler reads with vectors.
        uint64_t sums[8] = {};
        for (int64_t i = 0; i + 64 <= row_bytes; i += 64) {
            uint64_t words[8];
            memcpy(words, b + i, 64);
            for (int word = 0; word < 8; ++word) sums[word] ^= words[word];
        }
        uint64_t sum = 0;
        for (const uint64_t part : sums) sum ^= part;
        y[row] = static_cast<float>(sum & 0xffff);
    });
}

#if STRATA_AVX512

// x as int8 with one scale per 256 values, in order or in group layout; sums of 32 for minima and offsets.
struct Scaled {
    int8_t* q;
    float* d;
    int16_t* sums;
};

int64_t grouped_at(int64_t value) { return value / 512 * 512 + value % 32 / 4 * 64 + value / 32 % 16 * 4 + value % 4; }

Scaled scaled(Context context, const float* x, int64_t cols, bool grouped) {
    uint8_t* at = static_cast<uint8_t*>(context.shared.reserve(static_cast<size_t>(2 * cols + 128)));
    const Scaled to{reinterpret_cast<int8_t*>(at), reinterpret_cast<float*>(at + cols),
                    reinterpret_cast<int16_t*>(at + cols + cols / 64 + 64)};
    for (int64_t block = 0; block < cols / 256; ++block) {
        float largest = 0.0f;
        for (int i = 0; i < 256; ++i) largest = fmaxf(largest, fabsf(x[256 * block + i]));
        const float d = largest / 127.0f;
        to.d[block] = d;
        for (int s = 0; s < 8; ++s) {
            int sum = 0;
            for (int i = 0; i < 32; ++i) {
                const int64_t value = 256 * block + 32 * s + i;
                const int8_t q = static_cast<int8_t>(d > 0.0f ? round_even(x[value] / d) : 0.0f);
                to.q[grouped ? grouped_at(value) : value] = q;
                sum += q;
            }
            to.sums[8 * block + s] = static_cast<int16_t>(sum);
        }
    }
    return to;
}

// Two 32-byte halves of activations that belong to one 64-byte vector of nibbles.
inline __m512i halves(const int8_t* low, const int8_t* high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low))),
                              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)), 1);
}

void plain_q4_k(Context context, const WeightView& weight, const float* x, float* y) {
    const Scaled in = scaled(context, x, weight.cols, false);
    const int64_t blocks = weight.cols / 256;
    over_rows(context, weight.rows, [&](int64_t row) {
        const __m512i mask = _mm512_set1_epi8(15);
        __m512 acc = _mm512_setzero_ps();
        float minima = 0.0f;
        for (int64_t block = 0; block < blocks; ++block) {
            const uint8_t* b = weight.data + (row * blocks + block) * 144;
            const uint32_t w0 = read32(b + 4), w1 = read32(b + 8), w2 = read32(b + 12);
            const uint64_t scales = (w0 & 0x3f3f3f3fu) |
                                    static_cast<uint64_t>((w2 & 0x0f0f0f0fu) | (w0 >> 6 & 0x03030303u) << 4) << 32;
            const uint64_t mins = (w1 & 0x3f3f3f3fu) |
                                  static_cast<uint64_t>((w2 >> 4 & 0x0f0f0f0fu) | (w1 >> 6 & 0x03030303u) << 4) << 32;
            const __m512i small = _mm512_castsi256_si512(_mm256_cvtepu8_epi32(bytes16(scales, 0)));
            const int8_t* q = in.q + 256 * block;
            __m512i sum = _mm512_setzero_si512();
            for (int part = 0; part < 2; ++part) {
                const __m512i packed = _mm512_loadu_si512(b + 16 + 64 * part);
                const int8_t* here = q + 128 * part;
                const __m512i low = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(packed, mask),
                                                        halves(here, here + 64));
                const __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(),
                                                         _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask),
                                                         halves(here + 32, here + 96));
                const __m512i pick = _mm512_set_epi64(0x200000002, 0x200000002, 0x200000002, 0x200000002, 0, 0, 0, 0);
                const __m512i first = _mm512_add_epi32(pick, _mm512_set1_epi32(4 * part));
                const __m512i by_low = _mm512_permutexvar_epi32(first, small);
                const __m512i by_high = _mm512_permutexvar_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(1)), small);
                sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(low, by_low));
                sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(high, by_high));
            }
            const float d = in.d[block];
            acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(half_to_float(read16(b)) * d), acc);
            const __m128i products =
                _mm_madd_epi16(_mm_cvtepu8_epi16(bytes16(mins, 0)),
                               _mm_loadu_si128(reinterpret_cast<const __m128i*>(in.sums + 8 * block)));
            const __m128i pairs = _mm_add_epi32(products, _mm_unpackhi_epi64(products, products));
            const int total = _mm_cvtsi128_si32(pairs) + _mm_extract_epi32(pairs, 1);
            minima = fmaf(static_cast<float>(total), half_to_float(read16(b + 2)) * d, minima);
        }
        y[row] = _mm512_reduce_add_ps(acc) - minima;
    });
}

void plain_iq3_s(Context context, const WeightView& weight, const float* x, float* y) {
    const Scaled in = scaled(context, x, weight.cols, true);
    const int64_t groups = weight.cols / 512, blocks = weight.cols / 256;
    over_rows(context, weight.rows, [&](int64_t row) {
        __m512 acc = _mm512_setzero_ps();
        for (int64_t group = 0; group < groups; ++group) {
            alignas(64) uint8_t codes[512];
            alignas(64) float scale[16];
            FastGroup<IQ3_S>::decode(weight.data + (row * blocks + 2 * group) * IQ3_S::bytes, codes, scale, nullptr);
            const __m512i ones = _mm512_cvtepi16_epi32(
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in.sums + 16 * group)));
            __m512i sum = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(ones, 4));  // the offset is 16
            for (int step = 0; step < 8; ++step)
                sum = _mm512_dpbusd_epi32(sum, _mm512_load_si512(codes + 64 * step),
                                          _mm512_loadu_si512(in.q + 512 * group + 64 * step));
            const __m512 d =
                _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(in.d[2 * group]), _mm512_set1_ps(in.d[2 * group + 1]));
            acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(_mm512_load_ps(scale), d), acc);
        }
        y[row] = _mm512_reduce_add_ps(acc);
    });
}

#endif

}  // namespace

#if STRATA_AVX512
constinit const ProbeKernels probe_kernels = {plain_q4_k, plain_iq3_s, read};
#else
constinit const ProbeKernels probe_kernels = {nullptr, nullptr, read};
#endif

}  // namespace strata::STRATA_ISA
