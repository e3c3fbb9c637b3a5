"""i-quants with grids: blocks of 256 values; an index names 8 (IQ2, IQ1) or 4 (IQ3) integers at once.

Each function states its layout as field@offset; g counts groups of 8, k runs of 16, j runs of 32 values. w is the grid
value with its sign (IQ1: eight times the value with its delta). Scales are products of the fp16 d with small numbers in
the order written, all exact in float32: 11 significant bits times at most 5, and powers of two.
"""

import numpy as np

from strata.quant.blocks import Bytes, Decoded, Floats, Ints, bits, half, ints, nibble_pairs, words
from strata.quant.grids import GRIDS

_GRIDS = {name: grid.astype(np.int32) for name, grid in GRIDS.items()}

_SIGNS_OF_INDEX = (np.arange(128) | (sum(np.arange(128) >> b for b in range(7)) & 1) << 7).astype(np.int32)
"""A 7-bit sign index -> 8 sign bits, bit 7 being the parity of the others."""


def _look_up(grid: str, index: Ints, sign_bytes: Ints) -> Ints:
    """Grid values of index [N, n] with signs: bit i % 8 of sign byte i / 8 set means minus."""
    values = _GRIDS[grid][index].reshape(len(index), 256)
    return values * (1 - 2 * bits(sign_bytes))


def _quarter(raw: Bytes, small: Ints) -> Floats:
    """(float32(d) * (0.5 + s)) * 0.25, the IQ2 scale."""
    return half(raw, 0) * (np.float32(0.5) + small.astype(np.float32)) * np.float32(0.25)


def _sign_words(w: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> tuple[Ints, Ints]:
    """u32 [N, 8] {4 x 7-bit sign index, 4-bit scale} -> sign bytes [N, 32], scales [N, 8]."""
    index = w[:, :, None] >> np.array([0, 7, 14, 21]) & 127
    return _SIGNS_OF_INDEX[index].reshape(len(w), 32), (w >> 28).astype(np.int32)


def iq3_s(raw: Bytes) -> Decoded:
    """d fp16@0, 64 index bytes@2, 8 bytes of ninth index bits@66, 32 sign bytes@74, 4 bytes of scale nibbles@106.

    scale = float32(d) * (1 + 2 s) per 32 values.
    """
    index = ints(raw, 2, 64) | bits(ints(raw, 66, 8)) << 8
    small = 1 + 2 * nibble_pairs(ints(raw, 106, 4))
    return Decoded(_look_up("IQ3_S", index, ints(raw, 74, 32)), half(raw, 0) * small.astype(np.float32))


def iq3_xxs(raw: Bytes) -> Decoded:
    """d fp16@0, 64 index bytes@2, 8 u32@66 {4 x 7-bit sign index, scale s in the top 4 bits}.

    scale = (float32(d) * (0.5 + s)) * 0.5 per 32 values.
    """
    signs, small = _sign_words(words(raw, 66, 8, 4))
    scale = half(raw, 0) * (np.float32(0.5) + small.astype(np.float32)) * np.float32(0.5)
    return Decoded(_look_up("IQ3_XXS", ints(raw, 2, 64), signs), scale)


def iq2_xxs(raw: Bytes) -> Decoded:
    """d fp16@0, 8 x {4 index bytes, u32 {4 x 7-bit sign index, scale s in the top 4 bits}}@2.

    scale = (float32(d) * (0.5 + s)) * 0.25 per 32 values.
    """
    pairs = words(raw, 2, 16, 4).reshape(-1, 8, 2)
    index = (pairs[:, :, :1] >> np.array([0, 8, 16, 24]) & 255).reshape(-1, 32).astype(np.int32)
    signs, small = _sign_words(pairs[:, :, 1])
    return Decoded(_look_up("IQ2_XXS", index, signs), _quarter(raw, small))


def iq2_xs(raw: Bytes) -> Decoded:
    """d fp16@0, 32 u16@2 {9-bit index, 7-bit sign index}, 8 bytes of scale nibbles@66 (one per 16 values).

    scale = (float32(d) * (0.5 + s)) * 0.25 per 16 values.
    """
    pairs = words(raw, 2, 32, 2).astype(np.int32)
    w = _look_up("IQ2_XS", pairs & 511, _SIGNS_OF_INDEX[pairs >> 9])
    return Decoded(w, _quarter(raw, nibble_pairs(ints(raw, 66, 8))))


def iq2_s(raw: Bytes) -> Decoded:
    """d fp16@0, 32 index bytes@2, 32 sign bytes@34, 8 bytes of high index bits@66, 8 bytes of scale nibbles@74.

    Index bits 8, 9 of group g: bits 2 (g % 4) of byte g / 4. scale = (float32(d) * (0.5 + s)) * 0.25 per 16 values.
    """
    high = (ints(raw, 66, 8)[:, :, None] >> np.array([0, 2, 4, 6], np.int32) & 3).reshape(-1, 32)
    w = _look_up("IQ2_S", ints(raw, 2, 32) | high << 8, ints(raw, 34, 32))
    return Decoded(w, _quarter(raw, nibble_pairs(ints(raw, 74, 8))))


def _iq1_values(index: Ints, minus: Ints) -> Ints:
    """8 * (grid value + 1/8), or - 1/8 where `minus`: index, minus [N, 32] per group of 8 values."""
    return (8 * _GRIDS["IQ1"][index] + (1 - 2 * minus)[:, :, None]).reshape(len(index), 256)


def iq1_s(raw: Bytes) -> Decoded:
    """d fp16@0, 32 index bytes@2, 8 u16@34 {4 x 3 high index bits, 3-bit scale s, top bit: delta is negative}.

    scale = (float32(d) * (2 s + 1)) * 0.125 per 32 values.
    """
    head = words(raw, 34, 8, 2).astype(np.int32)
    high = (head[:, :, None] >> np.array([0, 3, 6, 9], np.int32) & 7).reshape(-1, 32)
    w = _iq1_values(ints(raw, 2, 32) | high << 8, np.repeat(head >> 15, 4, axis=1))
    small = (2 * (head >> 12 & 7) + 1).astype(np.float32)
    return Decoded(w, half(raw, 0) * small * np.float32(0.125))


def iq1_m(raw: Bytes) -> Decoded:
    """32 index bytes@0, 16 bytes@32 of nibbles {3 high index bits, top bit: delta is negative}, 4 u16@48.

    The top nibbles of the four u16, the first lowest, are the fp16 d; their low 12 bits are four 3-bit scales s.
    scale = (float32(d) * (2 s + 1)) * 0.125 per 16 values.
    """
    s = words(raw, 48, 4, 2)
    d = (s[:, :1] >> 12 | s[:, 1:2] >> 12 << 4 | s[:, 2:3] >> 12 << 8 | s[:, 3:4] >> 12 << 12).astype("<u2")
    tail = nibble_pairs(ints(raw, 32, 16))
    w = _iq1_values(ints(raw, 0, 32) | (tail & 7) << 8, tail >> 3)
    small = (2 * (s[:, :, None] >> np.array([0, 3, 6, 9]) & 7) + 1).reshape(-1, 16).astype(np.float32)
    return Decoded(w, d.view("<f2").astype(np.float32) * small * np.float32(0.125))
