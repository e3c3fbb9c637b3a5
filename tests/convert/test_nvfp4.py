"""NVFP4's two layouts."""

import numpy as np
import pytest

from strata.convert.nvfp4 import SCALED, repack, second_scales
from strata.convert.tensors import Item
from strata.quant.decode import dequantise
from strata.quant.formats import FORMATS

RNG = np.random.default_rng(0)


def test_repacked_numbers_are_the_same() -> None:
    pairs = RNG.integers(0, 256, (5, 96), dtype=np.uint8)
    scales = RNG.integers(0, 127, (5, 12), dtype=np.uint8)
    packed = repack(pairs, scales)
    want = dequantise(FORMATS["NVFP4_PAIRS"], pairs, scales)
    assert np.array_equal(dequantise(FORMATS["NVFP4"], packed), want)
    swapped = repack(pairs >> 4 | pairs << 4, scales)
    assert not np.array_equal(dequantise(FORMATS["NVFP4"], swapped), want)  # control: the nibbles' order matters


def test_scales_that_do_not_fit() -> None:
    pairs = np.zeros((1, 32), np.uint8)
    for bad in (0x7F, 0x80, 0xFF):
        with pytest.raises(ValueError, match="negative or not a number"):
            repack(pairs, np.array([[1, 2, bad, 3]], np.uint8))
    with pytest.raises(ValueError, match="rows of 32 values do not fill blocks of 64"):
        repack(np.zeros((1, 16), np.uint8), np.zeros((1, 2), np.uint8))


def test_second_scales_are_powers_of_two_that_lift_the_largest() -> None:
    x = np.zeros((3, 2, 64), np.float32)
    x[0, 1, 5], x[1, 0, 0] = 0.01, -700
    item = Item("blk.0.ffn_up_exps.weight", x.shape, lambda: iter(enumerate(x)), "F32")
    scales = second_scales(item)
    assert np.array_equal(np.log2(scales) % 1, np.zeros(3)) and scales[2] == 1
    lifted = np.array([0.01, 700]) / 6 / scales[:2]
    assert (lifted >= 256).all() and (lifted < 512).all()


def test_names_with_a_second_scale() -> None:
    for name in ("output", "blk.3.attn_output", "blk.0.ffn_down_exps", "blk.0.ffn_up_shexp", "blk.1.ssm_out"):
        assert SCALED.fullmatch(f"{name}.weight")
    for name in ("token_embd", "blk.0.hc_attn_up", "blk.0.ffn_gate_inp", "blk.0.indexer.q_proj"):
        assert not SCALED.fullmatch(f"{name}.weight")
