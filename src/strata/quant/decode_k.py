"""K-quants: blocks of 256 values with small integer scales.

Each function states its layout as field@offset. Scales are one float32 product, which is exact (blocks.by_scale).
"""

import numpy as np

from strata.quant.blocks import Bytes, Decoded, Ints, bits, by_scale, half, ints, nibbles, signed


def _crumbs(packed: Ints) -> Ints:
    """64 bytes -> 256 codes of 2 bits: value 128h + 32g + l is bits 2g of byte 32h + l."""
    shifts = np.array([0, 2, 4, 6], np.int32)[:, None]
    return (packed.reshape(-1, 2, 1, 32) >> shifts & 3).reshape(len(packed), 256)


def _scales_minima(raw: Bytes, start: int) -> tuple[Ints, Ints]:
    """The 12 bytes of Q4_K and Q5_K: 8 six-bit scales and 8 six-bit minima."""
    s = ints(raw, start, 12)
    a, b, c = s[:, :4], s[:, 4:8], s[:, 8:]
    scale = np.concatenate([a & 63, c & 15 | a >> 6 << 4], axis=1)
    return scale, np.concatenate([b & 63, c >> 4 | b >> 6 << 4], axis=1)


def _q4_q5(raw: Bytes, w: Ints) -> Decoded:
    scale, minimum = _scales_minima(raw, 4)
    return Decoded(w, by_scale(half(raw, 0), scale), by_scale(half(raw, 2), minimum))


def q4_k(raw: Bytes) -> Decoded:
    """d fp16@0, dmin fp16@2, 12 scale bytes@4, 128 bytes@16 (32 per 64 values, low nibbles first).

    w = nibble, scale = float32(d) * float32(sc), min = float32(dmin) * float32(m).
    """
    return _q4_q5(raw, nibbles(ints(raw, 16, 128).reshape(-1, 4, 32)))


def q5_k(raw: Bytes) -> Decoded:
    """As Q4_K with fifth bits 32 bytes@16 (bit i / 32 of byte i % 32) and the nibbles @48."""
    fifth = bits(ints(raw, 16, 32)).reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256)
    return _q4_q5(raw, nibbles(ints(raw, 48, 128).reshape(-1, 4, 32)) | fifth << 4)


def q6_k(raw: Bytes) -> Decoded:
    """128 bytes@0, high bits 64 bytes@128, 16 int8 scales@192, d fp16@208.

    w = (low nibbles | high bits << 4) - 32, scale = float32(d) * float32(sc), per 16 values.
    """
    w = nibbles(ints(raw, 0, 128).reshape(-1, 2, 64)) | _crumbs(ints(raw, 128, 64)) << 4
    return Decoded(w - 32, by_scale(half(raw, 208), signed(raw, 192, 16)))


def q2_k(raw: Bytes) -> Decoded:
    """16 bytes@0 (low nibble scale, high nibble minimum), 64 bytes@16, d fp16@80, dmin fp16@82.

    w = 2-bit code, scale = float32(d) * float32(sc), min = float32(dmin) * float32(m), per 16 values.
    """
    small = ints(raw, 0, 16)
    return Decoded(_crumbs(ints(raw, 16, 64)), by_scale(half(raw, 80), small & 15), by_scale(half(raw, 82), small >> 4))


def q3_k(raw: Bytes) -> Decoded:
    """High bits 32 bytes@0 (bit i / 32 of byte i % 32), 64 bytes@32, 12 scale bytes@96, d fp16@108.

    w = code - (0 when the high bit is set, else 4); scale k = float32(d) * float32(s - 32), s from the low nibbles of
    bytes 0..7 (k < 8) or their high ones, with two more bits of byte 8 + k % 4 at 2 (k / 4).
    """
    high = bits(ints(raw, 0, 32)).reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256)
    low = nibbles(ints(raw, 96, 8)[:, None])
    top = (ints(raw, 104, 4)[:, None] >> np.array([0, 2, 4, 6], np.int32)[:, None] & 3).reshape(-1, 16)
    return Decoded(_crumbs(ints(raw, 32, 64)) + 4 * high - 4, by_scale(half(raw, 108), (low | top << 4) - 32))
