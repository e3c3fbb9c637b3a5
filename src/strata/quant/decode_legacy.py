"""Blocks of 32 or 64 values: the legacy formats, IQ4_NL, the FP4 forms, Q2_0 and the ternary TQ types.

Each function states its layout as field@offset. i is the index in the block. All scales are exact in float32.
"""

import numpy as np

from strata.quant.blocks import Bytes, Decoded, Floats, bits, half, ints, nibble_pairs, nibbles, signed, words

NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int32)
"""IQ4_NL's and IQ4_XS's code values."""

E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int32)
"""FP4 (E2M1) values times two, which makes them integers."""


def _ue4m3() -> Floats:
    """GGML's unsigned E4M3 by byte: bias 7, subnormals; bit 7 is ignored, 0x7F is 0 (it would be NaN)."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    value[(code == 0x7F) | (code == 0xFF)] = 0
    return value.astype(np.float32)


UE4M3 = _ue4m3()


def q4_0(raw: Bytes) -> Decoded:
    """d fp16@0, 16 bytes@2 (byte j: low nibble value j, high value j + 16). w = nibble - 8, scale = d."""
    return Decoded(nibbles(ints(raw, 2, 16)[:, None]) - 8, half(raw, 0))


def q4_1(raw: Bytes) -> Decoded:
    """d fp16@0, m fp16@2, 16 bytes@4 as in Q4_0. w = nibble, scale = d, min = -m."""
    return Decoded(nibbles(ints(raw, 4, 16)[:, None]), half(raw, 0), -half(raw, 2))


def q5_0(raw: Bytes) -> Decoded:
    """d fp16@0, fifth bits u32@2 (bit i of value i), 16 bytes@6 as in Q4_0. w = (nibble | bit << 4) - 16, scale = d."""
    return Decoded((nibbles(ints(raw, 6, 16)[:, None]) | bits(ints(raw, 2, 4)) << 4) - 16, half(raw, 0))


def q5_1(raw: Bytes) -> Decoded:
    """d fp16@0, m fp16@2, fifth bits u32@4, 16 bytes@8. w = nibble | bit << 4, scale = d, min = -m."""
    return Decoded(nibbles(ints(raw, 8, 16)[:, None]) | bits(ints(raw, 4, 4)) << 4, half(raw, 0), -half(raw, 2))


def q8_0(raw: Bytes) -> Decoded:
    """d fp16@0, 32 int8@2. w = the byte, scale = d."""
    return Decoded(signed(raw, 2, 32), half(raw, 0))


def iq4_nl(raw: Bytes) -> Decoded:
    """As Q4_0, with w = NON_LINEAR[nibble]."""
    return Decoded(NON_LINEAR[nibbles(ints(raw, 2, 16)[:, None])], half(raw, 0))


def q2_0(raw: Bytes) -> Decoded:
    """d fp16@0, 16 bytes@2 (value i in bits 2 (i % 4) of byte i / 4). w = code - 1, scale = d for both halves."""
    codes = ints(raw, 2, 16)[:, :, None] >> np.array([0, 2, 4, 6], np.int32) & 3
    return Decoded(codes.reshape(len(raw), 64) - 1, np.repeat(half(raw, 0), 2, axis=1))


def mxfp4(raw: Bytes) -> Decoded:
    """e u8@0, 16 bytes@1 as in Q4_0. w = E2M1 doubled, scale = 2^(e - 128) (subnormal for e = 0 and 1)."""
    scale = np.ldexp(np.float32(1), ints(raw, 0, 1) - 128).astype(np.float32)
    return Decoded(E2M1_DOUBLED[nibbles(ints(raw, 1, 16)[:, None])], scale)


def nvfp4(raw: Bytes) -> Decoded:
    """4 UE4M3@0, 4 x 8 bytes@4: run s of 16 values has 8 bytes, low nibbles its first half.

    w = E2M1 doubled, scale = 0.5 * ue4m3(byte s).
    """
    return Decoded(E2M1_DOUBLED[nibbles(ints(raw, 4, 32).reshape(-1, 4, 8))], np.float32(0.5) * UE4M3[raw[:, :4]])


def nvfp4_pairs(raw: Bytes, scales: Floats) -> Decoded:
    """16 bytes, value 2i in the low and 2i + 1 in the high nibble of byte i; scales float32 [N, 2] from E4M3.

    w = E2M1 doubled, scale = 0.5 * the scale.
    """
    return Decoded(E2M1_DOUBLED[nibble_pairs(ints(raw, 0, 16))], np.float32(0.5) * scales)


def tq2_0(raw: Bytes) -> Decoded:
    """64 bytes@0, d fp16@64. Values 128h + 32l + m are bits 2l of byte 32h + m; w = code - 1, scale = d for all 8."""
    shifts = np.array([0, 2, 4, 6], np.int32)[:, None]
    codes = ints(raw, 0, 64).reshape(-1, 2, 1, 32) >> shifts & 3
    return Decoded(codes.reshape(len(raw), 256) - 1, np.repeat(half(raw, 64), 8, axis=1))


def tq1_0(raw: Bytes) -> Decoded:
    """48 + 4 bytes@0 of five (the last four bytes: four) base-3 digits each, d fp16@52.

    Digit n of byte b is ((b * 3^n mod 256) * 3) >> 8. Order: digits of bytes 0..31 (digit-major), of 32..47, of 48..51.
    w = digit - 1, scale = d for all 8 runs.
    """
    parts = []
    for start, count, digits in ((0, 32, 5), (32, 16, 5), (48, 4, 4)):
        powers = 3 ** np.arange(digits, dtype=np.int32)[:, None]
        turned = ints(raw, start, count)[:, None] * powers & 255
        parts.append((turned * 3 >> 8).reshape(len(raw), -1))
    return Decoded((np.concatenate(parts, axis=1) - 1).astype(np.int32), np.repeat(half(raw, 52), 8, axis=1))


def iq4_xs(raw: Bytes) -> Decoded:
    """d fp16@0, high scale bits u16@2, low scale nibbles 4 bytes@4, 128 bytes@8 (16 per run of 32, as in Q4_0).

    s = low | high << 4; w = NON_LINEAR[nibble], scale = float32(d) * (s - 32).
    """
    high = (words(raw, 2, 1, 2) >> 2 * np.arange(8)).astype(np.int32) & 3
    small = (nibble_pairs(ints(raw, 4, 4)) | high << 4) - 32
    w = NON_LINEAR[nibbles(ints(raw, 8, 128).reshape(-1, 8, 16))]
    return Decoded(w, half(raw, 0) * small.astype(np.float32))
