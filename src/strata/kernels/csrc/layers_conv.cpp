#include "layers_conv.h"

#include "layers_activation.h"

namespace strata::STRATA_ISA {
namespace {

// W channels x 4 taps as they lie in memory -> one vector per tap.
#if defined(STRATA_AVX512)
STRATA_INLINE void turn_taps(const float* weight, V* taps) {
    const __m512i even = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(2));
    const V a = vload(weight), b = vload(weight + 16), c = vload(weight + 32), d = vload(weight + 48);
    const V ab01 = _mm512_permutex2var_ps(a, even, b), ab23 = _mm512_permutex2var_ps(a, odd, b);
    const V cd01 = _mm512_permutex2var_ps(c, even, d), cd23 = _mm512_permutex2var_ps(c, odd, d);
    taps[0] = _mm512_shuffle_f32x4(ab01, cd01, 0x44);
    taps[1] = _mm512_shuffle_f32x4(ab01, cd01, 0xEE);
    taps[2] = _mm512_shuffle_f32x4(ab23, cd23, 0x44);
    taps[3] = _mm512_shuffle_f32x4(ab23, cd23, 0xEE);
}
#elif defined(STRATA_AVX2)
STRATA_INLINE void turn_taps(const float* weight, V* taps) {
    const V a = vload(weight), b = vload(weight + 8), c = vload(weight + 16), d = vload(weight + 24);
    const V ch0 = _mm256_permute2f128_ps(a, c, 0x20), ch1 = _mm256_permute2f128_ps(a, c, 0x31);
    const V ch2 = _mm256_permute2f128_ps(b, d, 0x20), ch3 = _mm256_permute2f128_ps(b, d, 0x31);
    const V low01 = _mm256_unpacklo_ps(ch0, ch1), low23 = _mm256_unpacklo_ps(ch2, ch3);
    const V high01 = _mm256_unpackhi_ps(ch0, ch1), high23 = _mm256_unpackhi_ps(ch2, ch3);
    taps[0] = _mm256_shuffle_ps(low01, low23, 0x44);
    taps[1] = _mm256_shuffle_ps(low01, low23, 0xEE);
    taps[2] = _mm256_shuffle_ps(high01, high23, 0x44);
    taps[3] = _mm256_shuffle_ps(high01, high23, 0xEE);
}
#else
STRATA_INLINE void turn_taps(const float* weight, V* taps) {
    for (int k = 0; k < 4; ++k)
        for (int c = 0; c < W; ++c) taps[k].v[c] = weight[c * 4 + k];
}
#endif

// weight [channels][taps] -> [taps][kConvChannels].
STRATA_INLINE void turn_weights(const float* weight, int64_t taps, int64_t width, float* turned) {
    int64_t c = 0;
    if (taps == 4)
        for (; c + W <= width; c += W) {
            V lines[4];
            turn_taps(weight + c * 4, lines);
            for (int k = 0; k < 4; ++k) vstore(turned + k * kConvChannels + c, lines[k]);
        }
    for (; c < width; ++c)
        for (int64_t k = 0; k < taps; ++k) turned[k * kConvChannels + c] = weight[c * taps + k];
}

// Where the rows of history and segment together lie, for one block of channels.
struct Source {
    const float* past;
    const float* x;
    int64_t span, stride;
    const float* row(int64_t at) const { return at < span ? past + at * stride : x + (at - span) * stride; }
};

// Row t of the segment with 4 taps, sums in registers.
STRATA_INLINE void conv_four(const Source& source, int64_t t, int64_t dilation, const float* weights, float* out,
                             int64_t width) {
    const float* rows[4];
    for (int k = 0; k < 4; ++k) rows[k] = source.row(t + k * dilation);
    int64_t c = 0;
    for (; c + W <= width; c += W) {
        V acc = vzero();
        for (int k = 0; k < 4; ++k) acc = vfma(vload(weights + k * kConvChannels + c), vload(rows[k] + c), acc);
        vstore(out + c, vsilu(acc));
    }
    for (; c < width; ++c) {
        float acc = 0.0f;
        for (int k = 0; k < 4; ++k) acc = __builtin_fmaf(weights[k * kConvChannels + c], rows[k][c], acc);
        out[c] = silu(acc);
    }
}

// The same for any number of taps.
STRATA_INLINE void conv_any(const Source& source, int64_t t, int64_t dilation, int64_t taps, const float* weights,
                            float* out, int64_t width) {
    float acc[kConvChannels] = {};
    for (int64_t k = 0; k < taps; ++k) {
        const float* row = source.row(t + k * dilation);
        const float* w = weights + k * kConvChannels;
        for (int64_t c = 0; c < width; ++c) acc[c] = __builtin_fmaf(w[c], row[c], acc[c]);
    }
    for (int64_t c = 0; c < width; ++c) out[c] = silu(acc[c]);
}

// The history of one block of channels moves on by a segment's rows.
STRATA_INLINE void carry_block(const Source& source, float* past, int64_t length, int64_t width) {
    for (int64_t i = 0; i < source.span; ++i)  // row i is read before it is overwritten: sources lie ahead
        memcpy(past + i * source.stride, source.row(length + i), static_cast<size_t>(width) * sizeof(float));
}

// One block of channels of one segment; `width` <= kConvChannels.
void conv_block(const ConvCall& call, const int32_t* segment, bool held, int64_t channel, int64_t width,
                float* weights) {
    const int64_t span = (call.taps - 1) * call.dilation, first = segment[1], length = segment[2];
    float* past = call.history + segment[0] * span * call.channels + channel;
    const Source source = {past, call.x + first * call.channels + channel, span, call.channels};
    turn_weights(call.weight + channel * call.taps, call.taps, width, weights);
    for (int64_t t = 0; t < length; ++t) {
        float* out = call.out + (first + t) * call.channels + channel;
        if (call.taps == 4)
            conv_four(source, t, call.dilation, weights, out, width);
        else
            conv_any(source, t, call.dilation, call.taps, weights, out, width);
    }
    if (!held) carry_block(source, past, length, width);
}

void conv(Pool& pool, const ConvCall& call, float* scratch) {
    const int64_t blocks = (call.channels + kConvChannels - 1) / kConvChannels, units = call.num_segments * blocks;
    const int chunks = chunks_for(units, call.rows * call.channels * (call.taps + 16), pool.threads());
    pool.parallel_for(chunks, [&](int chunk, int worker) {
        for (int64_t u = chunk_begin(units, chunks, chunk); u < chunk_begin(units, chunks, chunk + 1); ++u) {
            const int64_t channel = u % blocks * kConvChannels, left = call.channels - channel;
            conv_block(call, call.segments + u / blocks * 3, call.held && call.held[u / blocks], channel,
                       left < kConvChannels ? left : kConvChannels, scratch + worker * conv_floats(call.taps));
        }
    });
}

void carry(Pool& pool, const CarryCall& call) {
    const int chunks = chunks_for(call.num_segments, call.num_segments * call.span * call.channels, pool.threads());
    pool.parallel_for(chunks, [&](int chunk, int) {
        for (int64_t s = chunk_begin(call.num_segments, chunks, chunk);
             s < chunk_begin(call.num_segments, chunks, chunk + 1); ++s) {
            const int32_t* segment = call.segments + 3 * s;
            float* past = call.history + segment[0] * call.span * call.channels;
            carry_block({past, call.x + segment[1] * call.channels, call.span, call.channels}, past, segment[2],
                        call.channels);
        }
    });
}

}  // namespace

extern const ConvKernels conv_kernels = {conv, carry};

}  // namespace strata::STRATA_ISA
