// Codes of eight rows of a K-quant as matrix units take them, unpacked by one group of 32 lanes; for any products that
// have several rows of x.
//
// A step of a row is 32 sub-blocks, one for each lane of the lane rule (docs/numerics.md 1.4). Four groups share it:
// part p takes the sub-blocks p, p + 4, .., p + 28, its run. So a group's sums of a run are those of eight lanes of the
// rule, of which the first three levels of the tree meet within the group. Lane 4 r + c of a group has, of every
// sub-block of row r, the values 4 c .. and 16 + 4 c .., or 4 c .. of 16: one B of mma_s8, whose D has the row of x
// lane() / 4 and the rows of weights 2 (lane() % 4) and one more.
//
// How to use it, for rows whose steps lie in shared memory (products_runs.h does):
//     const Run<F>::Lane lane(at, part)      once a row: its first step begins `at` bytes after a base aligned to 16
//     Run<F>::pair(base, lane, q, w)         w[0], w[1]: sub-blocks 2 q and 2 q + 1 of the run. Next step: base +
//     Step<F>::bytes Run<F>::scales(base, lane, s, m)       scales, and minima where there are some, of sub-blocks 2
//     (lane() % 4) and one
//                                            more: every lane of a group two of the eight, for others to read
//     bias                                   is to be taken from codes: sum(w q) - bias sum(q), exact as an fma of
//     floats
// Reads up to 7 bytes past a step. Rows whose places are odd multiples of 16 apart meet no bank twice.
#pragma once

#include "products_step.h"

namespace strata::STRATA_ISA {

constexpr int run_parts = 4, run_subs = 8, run_lines = 8;

template <class F>
struct Run {
    static constexpr bool known = false;
};

template <class F>
constexpr bool has_runs = Run<F>::known;

template <int subtracted>
struct RunOf {
    static constexpr bool known = true;
    static constexpr int bias = subtracted;
};

// A place in shared memory as the word that it lies in, and the bits before it.
struct Spot {
    int word, bits;
    STRATA_METHOD explicit Spot(int at) : word(at & ~3), bits((at & 3) * 8) {}
};

// The word `more` bytes, a multiple of 4, behind a spot.
STRATA_INLINE uint32_t word_at(const uint8_t* base, const Spot& spot, int more) {
    const uint8_t* const from = base + spot.word + more;
    return shift_pair(load4(from), load4(from + 4), static_cast<uint32_t>(spot.bits));
}
STRATA_INLINE uint32_t word_at(const uint8_t* base, int even, int more) { return load4(base + even + more); }
STRATA_INLINE float half_float(const uint8_t* at) { return half_to_float(*reinterpret_cast<const uint16_t*>(at)); }

// Blocks of 256: a run has sub-blocks p and p + 4 of each of a step's four, nibbles of one side.
template <class F>
struct NibbleRunLane {
    static constexpr int head = F::bytes - 128;  // what lies before the nibbles
    int codes, fifth, shift, part, block;
    STRATA_METHOD NibbleRunLane(int at, int p)
        : codes(at + head + p / 2 * 32 + 4 * (lane() % 4)),
          fifth(at + 16 + 4 * (lane() % 4)),
          shift(p % 2 * 4),
          part(p),
          block(at + lane() % 4 * F::bytes) {}
};

// Six-bit scales and minima of sub-blocks p and p + 4 of the lane's block.
template <class F>
STRATA_INLINE void six_bit_scales(const uint8_t* base, const NibbleRunLane<F>& lane, float (&s)[2], float (&m)[2]) {
    const Words4 head = load16(base + lane.block);
    const int shift = 8 * lane.part;
    const uint32_t first = head.w[1] >> shift, second = head.w[2] >> shift, third = head.w[3] >> shift;
    const float d = half_to_float(head.w[0] & 0xffff), least = half_to_float(head.w[0] >> 16);
    s[0] = d * float_of_small(first & 63), s[1] = d * float_of_small((third & 15) | (first >> 2 & 48));
    m[0] = least * float_of_small(second & 63), m[1] = least * float_of_small((third >> 4 & 15) | (second >> 2 & 48));
}

template <>
struct Run<Q4_K> : RunOf<0> {
    using Lane = NibbleRunLane<Q4_K>;
    STRATA_INLINE void pair(const uint8_t* base, const Lane& lane, int q, uint32_t (&w)[2][2]) {
        STRATA_UNROLL
        for (int i = 0; i < 4; ++i)
            w[i / 2][i % 2] =
                word_at(base, lane.codes, q * Q4_K::bytes + i / 2 * 64 + i % 2 * 16) >> lane.shift & 0x0f0f0f0fu;
    }
    STRATA_INLINE void scales(const uint8_t* base, const Lane& lane, float (&s)[2], float (&m)[2]) {
        six_bit_scales<Q4_K>(base, lane, s, m);
    }
};

template <>
struct Run<Q5_K> : RunOf<0> {
    using Lane = NibbleRunLane<Q5_K>;
    STRATA_INLINE void pair(const uint8_t* base, const Lane& lane, int q, uint32_t (&w)[2][2]) {
        STRATA_UNROLL
        for (int i = 0; i < 2; ++i) {
            const uint32_t fifth = word_at(base, lane.fifth, q * Q5_K::bytes + i * 16) >> lane.part;
            STRATA_UNROLL
            for (int h = 0; h < 2; ++h) {
                const uint32_t x = word_at(base, lane.codes, q * Q5_K::bytes + h * 64 + i * 16) >> lane.shift & 0x0f0f0f0fu;
                w[h][i] = x | ((h == 0 ? fifth << 4 : fifth) & 0x10101010u);
            }
        }
    }
    STRATA_INLINE void scales(const uint8_t* base, const Lane& lane, float (&s)[2], float (&m)[2]) {
        six_bit_scales<Q5_K>(base, lane, s, m);
    }
};

// A step is two blocks. In each half of one, sub-blocks p and p + 4 are the low and the high nibbles of the same bytes.
template <>
struct Run<Q6_K> : RunOf<32> {
    struct Lane {
        Spot low[2], high[2];  // in the step's blocks
        int shift, block, scale;
        STRATA_METHOD Lane(int at, int p)
            : low{Spot(at + 16 * p + 4 * (lane() % 4)), Spot(at + 210 + 16 * p + 4 * (lane() % 4))},
              high{Spot(at + 128 + p % 2 * 16 + 4 * (lane() % 4)), Spot(at + 338 + p % 2 * 16 + 4 * (lane() % 4))},
              shift(p / 2 * 2),
              block(at + lane() % 4 / 2 * 210 + 208),
              scale(at + lane() % 4 / 2 * 210 + 192 + lane() % 2 * 8 + p) {}
    };
    STRATA_INLINE void pair(const uint8_t* base, const Lane& lane, int q, uint32_t (&w)[2][1]) {
        const uint32_t low = word_at(base, lane.low[q / 2], q % 2 * 64);
        const uint32_t high = word_at(base, lane.high[q / 2], q % 2 * 32) >> lane.shift;
        w[0][0] = (low & 0x0f0f0f0fu) | (high << 4 & 0x30303030u);
        w[1][0] = (low >> 4 & 0x0f0f0f0fu) | (high & 0x30303030u);
    }
    STRATA_INLINE void scales(const uint8_t* base, const Lane& lane, float (&s)[2], float (&)[2]) {
        const float d = half_float(base + lane.block);
        STRATA_UNROLL
        for (int i = 0; i < 2; ++i) s[i] = d * static_cast<float>(static_cast<int8_t>(base[lane.scale + 4 * i]));
    }
};

}  // namespace strata::STRATA_ISA
