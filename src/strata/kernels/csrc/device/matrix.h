// Products of small tiles of signed bytes on matrix units: exact int32 sums, so how a machine adds them cannot show.
//
//     mma_s8(d, a, b, c)       D [16, 8] = A [16, 32] B [32, 8] + C for a group of 32 lanes; A0, B0 of half-wide tiles:
//     mma_s8_half(d, a, b, c)  D [16, 8] = A [16, 16] B [16, 8] + C
//     mma_s8_on                mma_s8 with C[i, j] = c[j % 2]: a lane has two columns
//     load_rows(tile, rows_place(row), column, f)     A: 16 rows of 32 bytes of a swizzled tile from a multiple of 32
//     on,
//                              f[0..1] rows 0-7 and 8-15 of the bytes 0 .. 15, f[2..3] of the bytes 16 .. 31; lane l
//                              has the bytes 4 (l % 4) .. of row l / 4. A lane's place is the same for all columns, and
//                              8 rows on it is 1,024 bytes further
//     load_columns(tile, columns_place(row), column, f)   two B, whose columns are rows of a tile: f[0..1] bytes 0 ..
//     and
//                              16 .. of rows 0-7, f[2..3] of rows 8-15
//     load_half(tile, half_place(row), column, f)   32 rows of 16 bytes from a multiple of 16 on, eight rows a word:
//     two A0 or
//                              four B0
//
// Lane l holds D of rows l / 4 and l / 4 + 8, columns 2 (l % 4) and one more: d[0], d[1] of the first row.
// NVIDIA's instruction where there is one, sums of four bytes by dot4 elsewhere.
#pragma once

#include "bytes.h"

namespace strata::STRATA_ISA {

// Byte `column` of row `row` in a tile whose rows are 128 bytes: pieces of 16 bytes change places, so that eight rows'
// pieces of one column lie on different banks.
STRATA_INLINE int swizzled(int row, int column) { return row * 128 + ((column >> 4 ^ (row & 7)) << 4) + (column & 15); }

#if defined(__CUDA_ARCH__)

STRATA_INLINE void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int32_t c) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c));
}

STRATA_INLINE void mma_s8_half(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, int32_t c) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(c));
}

STRATA_INLINE void mma_s8_on(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const int32_t (&c)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%10,%11};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]));
}

// Each group of 8 lanes gives the places of 8 rows' pieces of 16 bytes.
STRATA_INLINE void load_pieces(const uint8_t* at, uint32_t (&f)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(at))));
}

STRATA_INLINE int rows_place(int row) { return swizzled(row + (lane() & 15), (lane() >> 4) * 16); }
STRATA_INLINE int columns_place(int row) { return swizzled(row + (lane() & 7) + (lane() >> 4) * 8, (lane() >> 3 & 1) * 16); }

STRATA_INLINE void load_rows(const uint8_t* tile, int place, int column, uint32_t (&f)[4]) {
    load_pieces(tile + (place ^ column), f);
}

STRATA_INLINE void load_columns(const uint8_t* tile, int place, int column, uint32_t (&f)[4]) {
    load_pieces(tile + (place ^ column), f);
}

STRATA_INLINE int half_place(int row) { return swizzled(row + lane(), 0); }

STRATA_INLINE void load_half(const uint8_t* tile, int place, int column, uint32_t (&f)[4]) {
    load_pieces(tile + (place ^ column), f);
}

#else

// What lane `source` holds, for every word of a tile's half: 4 lanes make a row of 16 bytes.
STRATA_INLINE void mma_s8_half(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, int32_t c) {
    for (int i = 0; i < 4; ++i) d[i] = c;
    const int row = lane() / 4 * 4, column = lane() % 4 * 8;
    for (int k = 0; k < 4; ++k) {
        const int32_t upper = static_cast<int32_t>(shuffle(a0, row + k)), lower = static_cast<int32_t>(shuffle(a1, row + k));
        for (int j = 0; j < 2; ++j) {
            const int32_t other = static_cast<int32_t>(shuffle(b, column + 4 * j + k));
            d[j] = dot4(upper, other, d[j]);
            d[2 + j] = dot4(lower, other, d[2 + j]);
        }
    }
}

STRATA_INLINE void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int32_t c) {
    int32_t half[4];
    mma_s8_half(half, a[0], a[1], b0, c);
    mma_s8_half(d, a[2], a[3], b1, 0);
    for (int i = 0; i < 4; ++i) d[i] += half[i];
}

STRATA_INLINE void mma_s8_on(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const int32_t (&c)[2]) {
    mma_s8(d, a, b0, b1, 0);
    for (int i = 0; i < 4; ++i) d[i] += c[i % 2];
}

STRATA_INLINE int rows_place(int row) { return swizzled(row + lane() / 4, lane() % 4 * 4); }
STRATA_INLINE int columns_place(int row) { return rows_place(row); }

STRATA_INLINE void load_rows(const uint8_t* tile, int place, int column, uint32_t (&f)[4]) {
    for (int i = 0; i < 4; ++i) f[i] = load4(tile + (place ^ column ^ i / 2 * 16) + i % 2 * 1024);
}

STRATA_INLINE void load_columns(const uint8_t* tile, int place, int column, uint32_t (&f)[4]) {
    for (int i = 0; i < 4; ++i) f[i] = load4(tile + (place ^ column ^ i % 2 * 16) + i / 2 * 1024);
}

STRATA_INLINE int half_place(int row) { return rows_place(row); }

STRATA_INLINE void load_half(const uint8_t* tile, int place, int column, uint32_t (&f)[4]) {
    for (int i = 0; i < 4; ++i) f[i] = load4(tile + (place ^ column) + i * 1024);
}

#endif

}  // namespace strata::STRATA_ISA
