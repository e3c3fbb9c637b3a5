// Products of few input rows with IQ3_S in AVX-512. The 64 indices of a block are looked up as they lie, and what
// belongs to an index stays in its byte: two values as a nibble each, from each of two planes. The activations are
// brought into that order once per call,
//
//     x[half][k][l] = value 4 l + k of the half's block,
//
// so that codes need neither a shift nor a permute: a high nibble counts sixteen times, and the low ones' sum is moved
// up before the high ones are added to it. Sums of integers are the same in every order.
#pragma once

#include "products_few_grid.h"

#if STRATA_AVX512

namespace strata::STRATA_ISA {

// A value's magnitude is 2 v + 1. Nibbles v + 8 for plus and 7 - v for minus are both (value + 15) / 2.
static constexpr GridPlanes<512> iq3_s_nibbles(grid_iq3_s, 4, 4, [](int v) { return v / 2; });
// What makes two v of an index such nibbles, by the low bits of a byte that begins with the index's four sign bits.
struct NibbleSigns : Bytes {
    constexpr explicit NibbleSigns(int plane)
        : Bytes([plane](int i) { return (i >> 2 * plane & 1 ? 7 : 8) | (i >> (2 * plane + 1) & 1 ? 0x70 : 0x80); }) {}
};
static constexpr NibbleSigns nibble_signs[2] = {NibbleSigns(0), NibbleSigns(1)};
// Bytes of two vectors in turns, from the first or the second half of both.
static constexpr Bytes in_turns[2] = {Bytes([](int i) { return i / 2 + 64 * (i % 2); }),
                                      Bytes([](int i) { return 32 + i / 2 + 64 * (i % 2); })};

// The job's activations in the order of the indices: row n's groups from to + n * groups * 512 on.
static inline void index_inputs(const FewRows& job, int8_t* to) {
    stride_inputs<32>(job, to);
    for (int64_t group = 0; group < job.n * job.groups; ++group, to += 512) {
        __m512i in[8];
        for (int i = 0; i < 8; ++i) in[i] = _mm512_loadu_si512(to + 64 * i);
        for (int i = 0; i < 8; ++i)
            _mm512_storeu_si512(to + 64 * i,
                                _mm512_permutex2var_epi8(in[i % 4], vector_at(in_turns[i / 4]), in[i % 4 + 4]));
    }
}

// The values of a block of 256: codes[0] and [2] hold the low nibbles, [1] and [3] the high ones.
STRATA_INSIDE void nibble_codes(const uint8_t* b, __m512i* codes) {
    const __m512i index = vector_of(b + 2), signs = _mm512_cvtepu8_epi16(half_of(b + 74));
    const __m512i own = _mm512_or_si512(signs, _mm512_slli_epi16(signs, 4));
    uint64_t ninth;
    memcpy(&ninth, b + 66, sizeof ninth);
    const GridParts where(index, _cvtu64_mask64(ninth));
    for (int plane = 0; plane < 2; ++plane) {
        const __m512i two = grid_look_up<512>(iq3_s_nibbles.plane[plane], index, where);
        const __m512i flip = _mm512_permutexvar_epi8(own, vector_at(nibble_signs[plane]));
        codes[2 * plane] = _mm512_ternarylogic_epi64(two, flip, _mm512_set1_epi8(0x0f), 0x28);  // (two ^ flip) & nibble
        codes[2 * plane + 1] = _mm512_ternarylogic_epi64(two, flip, _mm512_set1_epi8(static_cast<char>(0xf0)), 0x28);
    }
}

// Sixteen times the sums of nibbles times activations, two lanes to a sub-block.
STRATA_INSIDE __m512i nibble_sums(const __m512i* codes, const int8_t* x) {
    __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes[0], _mm512_loadu_si512(x));
    sum = _mm512_slli_epi32(_mm512_dpbusd_epi32(sum, codes[2], _mm512_loadu_si512(x + 128)), 4);
    sum = _mm512_dpbusd_epi32(sum, codes[1], _mm512_loadu_si512(x + 64));
    return _mm512_dpbusd_epi32(sum, codes[3], _mm512_loadu_si512(x + 192));
}

template <int N>
struct NibbleKernel {
    // A group of two blocks into the half of the lanes that acc holds; cell[n] is input row n's place in groups.
    STRATA_INSIDE void group(const __m512i* code, __m512 scale, const FewRows& job, const int8_t* q,
                             const int64_t* cell, int64_t g, __m512* acc) {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            const int8_t* x = q + (n * job.groups + g) * 512;
            const __m512i first = nibble_sums(code, x), second = nibble_sums(code + 4, x + 256);
            const __m512i both = _mm512_add_epi32(_mm512_permutex2var_epi32(first, even, second),
                                                  _mm512_permutex2var_epi32(first, odd, second));
            const __m512i ones = _mm512_loadu_si512(job.m + 16 * (cell[n] + g));
            const __m512i fifteen = _mm512_sub_epi32(_mm512_slli_epi32(ones, 4), ones);
            const __m512i sum = _mm512_sub_epi32(_mm512_srai_epi32(both, 3), fifteen);
            const __m512 u = _mm512_mul_ps(scale, _mm512_loadu_ps(job.d + 16 * (cell[n] + g)));
            acc[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), u, acc[n]);
        }
    }

    // Weight rows first .. last - 1 of the job with input rows from .. from + N - 1, q being theirs by index_inputs.
    static void rows(const FewRows& job, const int8_t* q, int64_t first, int64_t last, int64_t from) {
        static constexpr uint8_t zeros[IQ3_S::bytes] = {};  // fills a last group: a scale of 0, which meets d = 0
        const int64_t count = job.weight.cols / 256;
        int64_t cell[N];
        for (int n = 0; n < N; ++n) cell[n] = (job.index ? job.index[from + n] : from + n) * job.groups;
        const uint8_t* b = job.weight.data + first * count * IQ3_S::bytes;
        Ahead ahead(job, count * IQ3_S::bytes, first, last);
        for (int64_t row = first; row < last; ++row) {
            __m512 acc[N], other[N];  // the half of the lanes that the next group belongs to, and the one after it
            for (int n = 0; n < N; ++n) acc[n] = other[n] = _mm512_setzero_ps();
            for (int64_t block = 0; block < count; block += 2) {
                const bool both = block + 2 <= count;
                const uint8_t* c = both ? b + IQ3_S::bytes : zeros;
                ahead.ask(2 * IQ3_S::bytes);
                __m512i code[8];
                __m512 scale[2];
                nibble_codes(b, code);
                nibble_codes(c, code + 4);
                GridVectors<IQ3_S>::scales(b, c, scale);
                group(code, scale[0], job, q, cell, block / 2, acc);
                for (int n = 0; n < N; ++n) {
                    const __m512 done = acc[n];
                    acc[n] = other[n];
                    other[n] = done;
                }
                b += both ? 2 * IQ3_S::bytes : IQ3_S::bytes;
            }
            for (int n = 0; n < N; ++n) {
                const float y = job.groups % 2 ? lane_tree(other[n], acc[n]) : lane_tree(acc[n], other[n]);
                float& out = job.out[(from + n) * job.stride + row - job.first];
                out = job.weight.scale == 1.0f ? y : y * job.weight.scale;
            }
        }
    }
};

}  // namespace strata::STRATA_ISA

#endif
