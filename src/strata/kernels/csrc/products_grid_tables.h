// Tables of the grid formats for byte permutes, and the look-ups in them: each format's grid in planes, and the places
// that vectors are read from.
#pragma once

#include "blocks_iq.h"
#include "vector.h"

namespace strata::STRATA_ISA {

// 64 bytes that a function of their place gives.
struct Bytes {
    alignas(64) uint8_t of[64];
    template <class Value>
    constexpr explicit Bytes(Value value) : of() {
        for (int i = 0; i < 64; ++i) of[i] = static_cast<uint8_t>(value(i));
    }
};

// A grid of `count` entries: plane 0 holds the first half of an entry's values, plane 1 the other, each value as a
// number of `bits` bits.
template <int count>
struct GridPlanes {
    alignas(64) uint8_t plane[2][count];
    template <class Grid, class Number>
    constexpr GridPlanes(const Grid& grid, int values, int bits, Number number) : plane() {
        for (int index = 0; index < count; ++index)
            for (int v = 0; v < values; ++v) {
                uint8_t& byte = plane[v / (values / 2)][index];
                byte = static_cast<uint8_t>(byte | number(grid[index][v]) << bits * (v % (values / 2)));
            }
    }
};

constexpr int iq2_number(int magnitude) { return magnitude == 8 ? 0 : magnitude == 25 ? 1 : 2; }
constexpr int iq2_code(int number) { return IQ2_S::offset + (number == 0 ? 8 : number == 1 ? 25 : 43); }
constexpr int iq3_xxs_code(int number) { return IQ3_XXS::offset + (number == 7 ? 62 : 8 * number + 4); }
constexpr int iq1_code(int number) { return IQ1_S::offset + 8 * (number - 1) + 1; }

static constexpr GridPlanes<512> iq3_s_planes(grid_iq3_s, 4, 4, [](int v) { return 8 + v / 2; });
static constexpr GridPlanes<256> iq3_xxs_planes(grid_iq3_xxs, 4, 3, [](int v) { return v / 8; });
static constexpr GridPlanes<256> iq2_xxs_planes(grid_iq2_xxs, 8, 2, iq2_number);
static constexpr GridPlanes<512> iq2_xs_planes(grid_iq2_xs, 8, 2, iq2_number);
static constexpr GridPlanes<1024> iq2_s_planes(grid_iq2_s, 8, 2, iq2_number);
static constexpr GridPlanes<2048> iq1_planes(grid_iq1, 8, 2, [](int v) { return v + 1; });

// Codes by a permute's six bits of index: map k takes the number at bit k * bits.
static constexpr Bytes iq2_map[3] = {Bytes([](int i) { return iq2_code(i & 3); }),
                                     Bytes([](int i) { return iq2_code(i >> 2 & 3); }),
                                     Bytes([](int i) { return iq2_code(i >> 4); })};
static constexpr Bytes iq1_map[3] = {Bytes([](int i) { return iq1_code(i & 3); }),
                                     Bytes([](int i) { return iq1_code(i >> 2 & 3); }),
                                     Bytes([](int i) { return iq1_code(i >> 4); })};
static constexpr Bytes iq3_xxs_map[2] = {Bytes([](int i) { return iq3_xxs_code(i & 7); }),
                                         Bytes([](int i) { return iq3_xxs_code(i >> 3); })};

// IQ3_S: twice a number of its grid is offset + value, and what differs for offset - value are these four bits.
constexpr int iq3_s_flipped = 30;
// By a permute's six bits of index: those bits where bit k is set.
struct FlipMap : Bytes {
    constexpr explicit FlipMap(int k) : Bytes([k](int i) { return i >> k & 1 ? iq3_s_flipped : 0; }) {}
};
static constexpr FlipMap iq3_s_flips[6] = {FlipMap(0), FlipMap(1), FlipMap(2), FlipMap(3), FlipMap(4), FlipMap(5)};

// Sub-blocks with eight indices: byte (s, i) of vector p is index 2 i + p of sub-block s.
static constexpr Bytes every_second[2] = {Bytes([](int i) { return 2 * i; }), Bytes([](int i) { return 2 * i + 1; })};
// Sub-blocks with two: byte (s, i) of block k is plane i % 2 of its index 2 s + i / 2; and that index's byte.
static constexpr Bytes interleaved[2] = {Bytes([](int i) { return i / 2 + 64 * (i % 2); }),
                                         Bytes([](int i) { return 32 + i / 2 + 64 * (i % 2); })};
static constexpr Bytes doubled[2] = {Bytes([](int i) { return i / 2; }), Bytes([](int i) { return 32 + i / 2; })};
static constexpr Bytes fours([](int i) { return i / 4; });

// Transposing 4 x 4 bytes of every word: pairs of (0, 2) or (1, 3) of two vectors, then pairs of their halves.
static constexpr Bytes transpose_pairs[2] = {Bytes([](int i) { return i / 4 * 4 + i % 4 / 2 * 2 + 64 * (i % 2); }),
                                             Bytes([](int i) { return i / 4 * 4 + i % 4 / 2 * 2 + 1 + 64 * (i % 2); })};
static constexpr Bytes transpose_words[2] = {Bytes([](int i) { return i / 4 * 4 + i % 2 + i % 4 / 2 * 64; }),
                                             Bytes([](int i) { return i / 4 * 4 + 2 + i % 2 + i % 4 / 2 * 64; })};

// Windows of a multishift: byte i of a 32-bit word from bit i * width of it (two words in 64 bits), or all from one.
constexpr int word_bit(int i) { return i % 8 / 4 * 32; }
static constexpr Bytes two_bits([](int i) { return word_bit(i) + 2 * (i % 4); });
static constexpr Bytes three_bits([](int i) { return word_bit(i) + 3 * (i % 4); });
static constexpr Bytes seven_bits([](int i) { return word_bit(i) + 7 * (i % 4); });
static constexpr Bytes fifteenth_bit([](int i) { return word_bit(i) + 15; });
static constexpr Bytes nibble_bits([](int i) { return i % 8 / 2 * 16 + 4 * (i % 2); });  // of 16-bit words

// A 7-bit sign index -> 8 sign bits.
struct SignTable {
    alignas(64) uint8_t of[128];
    constexpr SignTable() : of() {
        for (int index = 0; index < 128; ++index) {
            int parity = 0;
            for (int bit = 0; bit < 7; ++bit) parity ^= index >> bit & 1;
            of[index] = static_cast<uint8_t>(index | parity << 7);
        }
    }
};
static constexpr SignTable sign_table;

// start + step n by a number n.
struct ScaleTable {
    alignas(64) float of[16];
    constexpr ScaleTable(float start, float step) : of() {
        for (int n = 0; n < 16; ++n) of[n] = start + step * static_cast<float>(n);
    }
};
static constexpr ScaleTable iq3_s_scales(1.0f, 2.0f), iq3_xxs_scales(0.25f, 0.5f), iq2_scales(0.125f, 0.25f),
    iq1_scales(0.125f, 0.25f);

#if STRATA_AVX512

// Inlined whatever its size: the eight vectors of codes stay in registers (out of line, IQ1 takes 1.6 times as long).
#define STRATA_INSIDE __attribute__((always_inline)) static inline

static inline __m512i vector_at(const Bytes& bytes) { return _mm512_load_si512(bytes.of); }
static inline __m512i vector_at(const uint8_t* table) { return _mm512_load_si512(table); }
static inline __m512i vector_of(const uint8_t* from) { return _mm512_loadu_si512(from); }
static inline __m256i half_of(const uint8_t* b) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)); }
static inline __m128i quarter_of(const uint8_t* b) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)); }

// 32, 16 or 8 bytes of each of two blocks.
static inline __m512i halves_of(const uint8_t* b, const uint8_t* c) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(half_of(b)), half_of(c), 1);
}
static inline __m256i quarters_of(const uint8_t* b, const uint8_t* c) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(quarter_of(b)), quarter_of(c), 1);
}
static inline __m128i eighths_of(const uint8_t* b, const uint8_t* c) {
    return _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b)),
                              _mm_loadl_epi64(reinterpret_cast<const __m128i*>(c)));
}

// Which of the 64 lanes have a bit of their index set: bit 7, then bits 8, 9, 10. `part` holds the lanes of the four
// quarters that bits 7 and 8 give.
struct GridParts {
    __mmask64 part[4];
    __mmask64 above[2];
    GridParts(__m512i index, __mmask64 eighth, __mmask64 ninth = 0, __mmask64 tenth = 0) : above{ninth, tenth} {
        const __mmask64 top = _mm512_movepi8_mask(index);
        part[0] = ~eighth & ~top, part[1] = ~eighth & top, part[2] = eighth & ~top, part[3] = eighth & top;
    }
};

// Looks 64 indices up in a plane of `count` bytes. A permute takes bits 0 .. 6 of each index and covers 128 entries.
template <int count>
STRATA_INSIDE __m512i grid_look_up(const uint8_t* plane, __m512i index, const GridParts& where) {
    if constexpr (count > 512) {
        const __m512i low = grid_look_up<count / 2>(plane, index, where);
        const __m512i high = grid_look_up<count / 2>(plane + count / 2, index, where);
        return _mm512_mask_blend_epi8(where.above[count == 2048], low, high);
    } else {
        for (int k = 0; k < count / 128; ++k) {
            const __mmask64 lanes = count == 512 ? where.part[k] : k ? where.part[1] : where.part[0];
            index = _mm512_mask2_permutex2var_epi8(vector_at(plane + 128 * k), index, lanes,
                                                   vector_at(plane + 128 * k + 64));
        }
        return index;
    }
}

static inline __mmask64 bit_of(__m512i bytes, int bit) {
    return _mm512_test_epi8_mask(bytes, _mm512_set1_epi8(static_cast<char>(1 << bit)));
}

// offset + magnitude -> offset - magnitude in the lanes of `minus`.
static inline __m512i with_signs(__m512i code, __mmask64 minus, int offset) {
    return _mm512_mask_sub_epi8(code, minus, _mm512_set1_epi8(static_cast<char>(2 * offset)), code);
}

// Codes of bytes with four two-bit numbers.
static inline void map_crumbs(__m512i crumbs, const Bytes* map, __m512i* code) {
    for (int k = 0; k < 3; ++k) code[k] = _mm512_permutexvar_epi8(crumbs, vector_at(map[k]));
    code[3] = _mm512_permutexvar_epi8(_mm512_srli_epi16(crumbs, 2), vector_at(map[2]));
}

// Sign bits by the low seven bits of every byte.
static inline __m512i signs_at(__m512i index) {
    return _mm512_permutex2var_epi8(vector_at(sign_table.of), index, vector_at(sign_table.of + 64));
}

// A window of 8 bits for every byte.
static inline __m512i windows(const Bytes& from, __m512i words) {
    return _mm512_multishift_epi64_epi8(vector_at(from), words);
}

// The fp16 numbers at b (for the low eight lanes) and c.
static inline __m512 halves_at(const uint8_t* b, const uint8_t* c) {
    const __m256i low = _mm256_set1_epi16(static_cast<short>(read16(b)));
    return _mm512_cvtph_ps(_mm256_mask_set1_epi16(low, 0xff00, static_cast<short>(read16(c))));
}

// d * (start + step n) for the number n in the low four bits of every lane. Exact, like the written order of blocks.h:
// 11 bits times 5.
static inline __m512 scaled(__m512 d, __m512i numbers, const ScaleTable& table) {
    return _mm512_mul_ps(d, _mm512_permutexvar_ps(numbers, _mm512_load_ps(table.of)));
}

// Byte i of word w of vector j -> byte j of word w of vector i.
static inline void transpose4(const __m512i* from, __m512i* to) {
    const __m512i even = vector_at(transpose_pairs[0]), odd = vector_at(transpose_pairs[1]);
    const __m512i low = vector_at(transpose_words[0]), high = vector_at(transpose_words[1]);
    const __m512i first02 = _mm512_permutex2var_epi8(from[0], even, from[1]);
    const __m512i first13 = _mm512_permutex2var_epi8(from[0], odd, from[1]);
    const __m512i second02 = _mm512_permutex2var_epi8(from[2], even, from[3]);
    const __m512i second13 = _mm512_permutex2var_epi8(from[2], odd, from[3]);
    to[0] = _mm512_permutex2var_epi8(first02, low, second02);
    to[1] = _mm512_permutex2var_epi8(first13, low, second13);
    to[2] = _mm512_permutex2var_epi8(first02, high, second02);
    to[3] = _mm512_permutex2var_epi8(first13, high, second13);
}

#endif

}  // namespace strata::STRATA_ISA
