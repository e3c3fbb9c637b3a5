import struct
from fractions import Fraction

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from quant.random_blocks import random_blocks
from strata.core.errors import UnsupportedError
from strata.quant.decode import E4M3, codes, dequantise
from strata.quant.formats import FORMATS

SHARED = [f for f in FORMATS.values() if f.kind != "data" and f.name in GGMLQuantizationType.__members__]
CODED = [f for f in FORMATS.values() if f.kind == "codes" and f.scale_block is None]
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@pytest.mark.parametrize("fmt", SHARED, ids=lambda f: f.name)
def test_bits_equal_ggufs(fmt) -> None:
    raw = random_blocks(fmt, 24, 1024, np.random.default_rng(fmt.type_id))
    want = quants.dequantize(raw, GGMLQuantizationType[fmt.name]).astype(np.float32)
    got = dequantise(fmt, raw)
    assert got.dtype == np.float32
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("fmt", [f for f in SHARED if f.name != "TQ1_0"], ids=lambda f: f.name)
def test_a_flipped_bit_in_any_byte_shows(fmt) -> None:
    """The control of the comparison above. (TQ1_0 spends 256 codes on 243 combinations of digits.)"""
    raw = random_blocks(fmt, 6, fmt.block, np.random.default_rng(1), zero=0)
    before = dequantise(fmt, raw)
    for at in range(raw.shape[1]):
        other = raw.copy()
        other[:, at] ^= 1
        assert not np.array_equal(before, dequantise(fmt, other)), at


@pytest.mark.parametrize("fmt", CODED, ids=lambda f: f.name)
def test_codes_are_small_integers_and_scales_are_exact(fmt) -> None:
    raw = random_blocks(fmt, 8, 512, np.random.default_rng(fmt.type_id))
    parts = codes(fmt, raw)
    assert parts.w_int.dtype == np.int32 and parts.w_int.shape == (8, 512)
    assert parts.scale.dtype == np.float32 and parts.scale.shape == (8, 512 // fmt.sub)
    assert (parts.min_scale is not None) == fmt.minima
    assert np.abs(parts.w_int).max() <= 128  # so that a sum of 32 products with int8 stays below 2^24
    value = parts.scale.repeat(fmt.sub, axis=1).astype(np.float64) * parts.w_int
    if parts.min_scale is not None:
        value = value - parts.min_scale.repeat(fmt.sub, axis=1).astype(np.float64)
    assert np.allclose(dequantise(fmt, raw), value, rtol=1e-6, atol=1e-6)


def test_q2_0_by_hand_and_by_formula() -> None:
    fmt = FORMATS["Q2_0"]
    hand = np.frombuffer(struct.pack("<e", 0.5) + bytes([0b11100100]) * 16, np.uint8).reshape(1, -1)
    assert dequantise(fmt, hand)[0].tolist() == [-0.5, 0.0, 0.5, 1.0] * 16
    raw = random_blocks(fmt, 5, 128, np.random.default_rng(3))
    got = dequantise(fmt, raw)
    for row in range(5):
        for i in range(128):
            block = raw[row, i // 64 * 18 : i // 64 * 18 + 18].tobytes()
            (d,) = struct.unpack_from("<e", block)
            assert got[row, i] == d * ((block[2 + i % 64 // 4] >> 2 * (i % 4) & 3) - 1)


def test_e4m3_equals_torch() -> None:
    want = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(E4M3, want, equal_nan=True)
    assert np.isnan(E4M3[[127, 255]]).all() and E4M3[126] == 448 and E4M3[1] == 2.0**-9


def e4m3(byte: int) -> Fraction:
    exponent, mantissa = byte >> 3 & 15, byte & 7
    size = Fraction(mantissa, 512) if exponent == 0 else Fraction(8 + mantissa, 8) * Fraction(2) ** (exponent - 7)
    return -size if byte & 128 else size


def test_fp8_block_by_formula() -> None:
    fmt, rng = FORMATS["FP8_BLOCK"], np.random.default_rng(4)
    raw = random_blocks(fmt, 130, 200, rng)
    scales = rng.uniform(0.01, 2, (2, 2)).astype(np.float32)
    got = dequantise(fmt, raw, scales)
    for row, column in [(0, 0), (0, 127), (0, 128), (127, 199), (128, 5), (129, 199), *rng.integers(0, 130, (50, 2))]:
        exact = e4m3(int(raw[row, column])) * Fraction(float(scales[row // 128, column // 128]))
        assert got[row, column] == np.float32(float(exact))
    picked = np.array([129, 0, 128])
    assert np.array_equal(dequantise(fmt, raw[picked], scales, picked), got[picked])
    assert not np.array_equal(dequantise(fmt, raw[picked], scales), got[picked])  # control: rows left out
    plain = dequantise(FORMATS["FP8"], raw)
    assert all(plain[r, c] == float(e4m3(int(raw[r, c]))) for r, c in rng.integers(0, 130, (50, 2)))


def test_nvfp4_pairs_by_formula() -> None:
    fmt, rng = FORMATS["NVFP4_PAIRS"], np.random.default_rng(5)
    raw = random_blocks(fmt, 4, 96, rng)
    scales = rng.integers(0, 127, (4, 6), dtype=np.uint8)
    got = dequantise(fmt, raw, scales)
    for row in range(4):
        for i in range(96):
            code = int(raw[row, i // 2]) >> 4 * (i % 2) & 15
            size = Fraction(E2M1[code & 7]) * e4m3(int(scales[row, i // 16]))
            assert got[row, i] == float(-size if code & 8 else size)


def test_codes_with_infinite_scales_give_what_ieee_says() -> None:
    raw = random_blocks(FORMATS["Q4_K"], 1, 256, np.random.default_rng(6))
    raw[0, :2] = np.array([np.inf], np.float16).view(np.uint8)
    assert not np.isfinite(dequantise(FORMATS["Q4_K"], raw)).all()


def test_refusals() -> None:
    rows = np.zeros((2, 34), np.uint8)
    with pytest.raises(UnsupportedError, match="F16 has no integer codes"):
        codes(FORMATS["F16"], rows)
    with pytest.raises(UnsupportedError, match="I32 is not a format of weights"):
        dequantise(FORMATS["I32"], np.zeros((1, 8), np.uint8))
    with pytest.raises(ValueError, match="34 bytes are no multiple of Q4_0"):
        dequantise(FORMATS["Q4_0"], rows)
    with pytest.raises(ValueError, match="FP8_BLOCK needs its scales"):
        dequantise(FORMATS["FP8_BLOCK"], rows)
    with pytest.raises(ValueError, match="need 1 scales a row, found shape"):
        dequantise(FORMATS["FP8_BLOCK"], rows, np.ones((1, 2), np.float32))
    with pytest.raises(ValueError, match="needs 2 rows of scales, found 1"):
        dequantise(FORMATS["NVFP4_PAIRS"], np.zeros((2, 16), np.uint8), np.ones((1, 2), np.uint8))
