"""The canonical product, its float twin, experts and rows of tables against scalar rational arithmetic."""

import dataclasses

import numpy as np
import pytest
import torch

from kernels.rational import add32, fma32, multiply32, quantise32, tree32
from quant.random_blocks import random_blocks
from strata.kernels.activate.naive import silu
from strata.kernels.embed.naive import embed
from strata.kernels.exact import fma, multiply
from strata.kernels.experts.naive import experts
from strata.kernels.linear.naive import linear
from strata.kernels.views import ExpertBank, Weight
from strata.quant.decode import codes, dequantise
from strata.quant.format import QuantFormat
from strata.quant.formats import FORMATS

CODED = [f for f in FORMATS.values() if f.kind == "codes"]
FLOATS = [f for f in FORMATS.values() if f.kind == "float"]


def make_weight(fmt: QuantFormat, rows: int, cols: int, seed: int = 0, scale: float = 1.0) -> Weight:
    rng = np.random.default_rng(seed)
    planes = [torch.from_numpy(random_blocks(fmt, rows, cols, rng, 0.1))]
    if fmt.name == "FP8_BLOCK":
        shape = (-(-rows // 128), -(-cols // 128))
        planes.append(torch.from_numpy(rng.uniform(0.001, 0.1, shape).astype(np.float32)))
    if fmt.name == "NVFP4_PAIRS":
        scales = torch.from_numpy(rng.integers(0, 127, (rows, cols // 16), dtype=np.uint8))
        planes.append(scales.view(torch.float8_e4m3fn))
    return Weight(fmt, rows, cols, tuple(planes), scale)


def scales_of(weight: Weight) -> np.ndarray | None:
    if len(weight.planes) == 1:
        return None
    plane = weight.planes[1]
    return plane.view(torch.uint8).numpy() if plane.dtype == torch.float8_e4m3fn else plane.numpy()


def activations(rows: int, cols: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, cols)) * 10.0 ** rng.integers(-2, 3, (rows, 1))).astype(np.float32)


def product(x: np.ndarray, *weights: Weight) -> list[np.ndarray]:
    return [y.numpy() for y in linear(torch.from_numpy(x), weights)]


def scalar_codes_product(x: np.ndarray, weight: Weight, row: int, lane_of: int = 32) -> float:
    """Rules 1 to 5 for one row of x and one row of the weight; another `lane_of` is a mutation."""
    fmt = weight.format
    parts = codes(fmt, weight.planes[0].numpy(), scales_of(weight))
    blocks = [quantise32(x[i : i + 32]) for i in range(0, len(x), 32)]
    q = [value for block, _ in blocks for value in block]
    lanes = [0.0] * 32
    for b in range(len(x) // fmt.sub):
        run = range(b * fmt.sub, (b + 1) * fmt.sub)
        d = blocks[b * fmt.sub // 32][1]
        i_b = sum(int(parts.w_int[row, i]) * q[i] for i in run)
        lane = b % lane_of
        lanes[lane] = fma32(i_b, multiply32(parts.scale[row, b], d), lanes[lane])
        if parts.min_scale is not None:
            m_b = sum(q[i] for i in run)
            lanes[lane] = fma32(-m_b, multiply32(parts.min_scale[row, b], d), lanes[lane])
    return multiply32(tree32(lanes), np.float32(weight.scale)) if weight.scale != 1.0 else tree32(lanes)


@pytest.mark.parametrize("fmt", CODED, ids=lambda f: f.name)
def test_product_equals_the_rule(fmt: QuantFormat) -> None:
    """Lengths of one sub-block up to more than one round of the 32 lanes."""
    lengths = (fmt.block, 1280) if fmt.block == 256 else (fmt.block, 160 // fmt.block * fmt.block, 1088)
    for cols in lengths:
        weight, x = make_weight(fmt, 3, cols, seed=cols), activations(2, cols)
        (y,) = product(x, weight)
        want = [[scalar_codes_product(x[t], weight, r) for r in range(3)] for t in range(2)]
        assert y.dtype == np.float32 and np.isfinite(y).all() and y.any()
        assert y.tolist() == want


def test_another_lane_order_shows() -> None:
    """The control: 31 lanes, or 16, give other bits."""
    weight, x = make_weight(FORMATS["Q4_K"], 8, 2560), activations(1, 2560)
    (y,) = product(x, weight)
    for lanes in (16, 31):
        assert y[0].tolist() != [scalar_codes_product(x[0], weight, r, lanes) for r in range(8)]


@pytest.mark.parametrize("fmt", CODED + FLOATS, ids=lambda f: f.name)
def test_a_row_does_not_depend_on_its_company(fmt: QuantFormat) -> None:
    cols = 512 if fmt.kind == "codes" else 80
    weight, x = make_weight(fmt, 130, cols), activations(7, cols)
    (together,) = product(x, weight)
    for t in range(7):
        (alone,) = product(x[t : t + 1], weight)
        assert np.array_equal(alone[0].view(np.uint32), together[t].view(np.uint32))
    many, _ = product(np.tile(x, (20, 1)), weight, weight)  # several bands of rows
    assert np.array_equal(many[:7].view(np.uint32), together.view(np.uint32))


@pytest.mark.parametrize("fmt", CODED + FLOATS, ids=lambda f: f.name)
def test_product_is_near_float64(fmt: QuantFormat) -> None:
    weight, x = make_weight(fmt, 64, 768), activations(4, 768)
    (y,) = product(x, weight)
    w = dequantise(fmt, weight.planes[0].numpy(), scales_of(weight)).astype(np.float64)
    error = np.abs(y - x @ w.T) / (np.abs(x) @ np.abs(w).T + 1e-30)
    assert error.max() < (1e-2 if fmt.kind == "codes" else 1e-6)
    shifted = np.abs(y - x @ np.roll(w, 1, axis=1).T) / (np.abs(x) @ np.abs(w).T + 1e-30)
    assert shifted.max() > 2e-2  # control: columns off by one


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda f: f.name)
@pytest.mark.parametrize("cols", [1, 31, 33, 100, 160])
def test_float_twin_equals_the_rule(fmt: QuantFormat, cols: int) -> None:
    weight, x = make_weight(fmt, 3, cols, seed=cols), activations(2, cols)
    w = dequantise(fmt, weight.planes[0].numpy(), scales_of(weight))
    (y,) = product(x, weight)
    for t in range(2):
        for r in range(3):
            lanes = [0.0] * 32
            for i in range(cols):
                lanes[i % 32] = fma32(x[t, i], w[r, i], lanes[i % 32])
            assert y[t, r] == np.float32(tree32(lanes))


@pytest.mark.parametrize("name", ["FP8", "NVFP4_PAIRS", "Q8_0"])
def test_the_weights_scale_comes_last(name: str) -> None:
    plain = make_weight(FORMATS[name], 16, 128)
    scaled = dataclasses.replace(plain, scale=0.3)
    x = activations(3, 128)
    y, z = product(x, plain, scaled)
    assert np.array_equal(z, y * np.float32(0.3))
    assert not np.array_equal(y, z)


def test_a_value_that_is_not_finite_shows() -> None:
    x = activations(3, 64)
    x[1, 40] = np.inf
    for name in ("Q8_0", "IQ4_NL", "Q4_1"):
        (y,) = product(x, make_weight(FORMATS[name], 4, 64))
        assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2]]).all()


def make_bank(gate_format: str, down_format: str, hidden: int, width: int, count: int) -> ExpertBank:
    def several(name: str, rows: int, cols: int, seed: int) -> tuple[Weight, ...]:
        return tuple(make_weight(FORMATS[name], rows, cols, seed + e) for e in range(count))

    gate, up = (several(gate_format, width, hidden, seed) for seed in (10, 20))
    return ExpertBank(gate, up, several(down_format, hidden, width, 30))


@pytest.mark.parametrize(("gate", "down"), [("IQ3_S", "IQ4_NL"), ("Q4_K", "Q2_0"), ("F32", "BF16"), ("Q8_0", "F16")])
def test_experts(gate: str, down: str) -> None:
    bank, x = make_bank(gate, down, 256, 64, 5), activations(4, 256)
    ids = torch.tensor([[0, 3], [3, 1], [4, 0], [2, 3]], dtype=torch.int32)
    weights = torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.9, 0.1], [0.5, 0.5]])
    y = experts(torch.from_numpy(x), ids, weights, bank).numpy()
    swapped = np.empty_like(y)
    for t in range(4):
        row, outputs = x[t : t + 1], []
        for e in ids[t].tolist():
            g, u = product(row, bank.gate[e], bank.up[e])
            outputs.append(product(multiply(silu(g), u), bank.down[e])[0][0])
        first, second = weights[t].numpy()
        want = [fma32(second, b, multiply32(first, a)) for a, b in zip(*outputs, strict=True)]
        assert y[t].tolist() == want
        swapped[t] = fma(first, outputs[0], multiply(second, outputs[1]))
    assert np.isfinite(y).all() and not np.array_equal(swapped, y)  # control: the order of ranks shows
    with pytest.raises(IndexError, match="expert 5 of 5"):
        experts(torch.from_numpy(x), ids + 2, weights, bank)


@pytest.mark.parametrize("name", ["Q4_K", "IQ4_NL", "BF16", "FP8_BLOCK", "NVFP4_PAIRS"])
def test_embed(name: str) -> None:
    weight = make_weight(FORMATS[name], 300, 256, scale=2.5)
    ids = np.array([299, 0, 150, 0])
    want = dequantise(weight.format, weight.planes[0].numpy(), scales_of(weight))[ids] * np.float32(2.5)
    assert np.array_equal(embed(torch.from_numpy(ids), [weight]).numpy(), want)
    for bad in (300, -1):
        with pytest.raises(IndexError, match=f"row {bad} of a table of 300 rows"):
            embed(torch.tensor([1, bad]), [weight])


def test_refusals() -> None:
    weight = make_weight(FORMATS["Q8_0"], 4, 64)
    with pytest.raises(ValueError, match="rows of 96 values for a weight of 64 columns"):
        product(activations(1, 96), weight)
    with pytest.raises(ValueError, match=r"Q8_0 weight of 5 x 64 needs uint8 \(5, 68\), found uint8 \(4, 68\)"):
        product(activations(1, 64), dataclasses.replace(weight, rows=5))
    block = make_weight(FORMATS["FP8_BLOCK"], 4, 64)
    with pytest.raises(ValueError, match="FP8_BLOCK weight of 4 x 64 has no plane of scales"):
        product(activations(1, 64), dataclasses.replace(block, planes=block.planes[:1]))


def test_scalar_helpers_agree_with_each_other() -> None:
    assert add32(1.0, 2.0**-24) == 1.0 and add32(1.0, 2.0**-23) == 1 + 2.0**-23
