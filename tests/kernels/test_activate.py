"""The shared exponential and what is built on it, against float64."""

import numpy as np
import pytest
import torch

from kernels.layer_cases import every_way, native, same_bits
from kernels.rational import add32, fma32, multiply32
from strata.kernels.activate import cpu, naive
from strata.kernels.activate.naive import activate, exp, sigmoid, silu, softplus
from strata.kernels.ops import Activation


def grid(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([np.linspace(low, high, 300001), rng.uniform(-1, 1, 100000)]).astype(np.float32)


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got / want - 1).max())


def test_exp_error() -> None:
    x = grid(-87.3, 88.72)
    error = relative(exp(x), np.exp(x.astype(np.float64)))
    assert error <= 1e-7
    assert relative(exp(x + np.float32(1e-6)), np.exp(x.astype(np.float64))) > 1e-7  # control


def test_exp_equals_the_written_steps() -> None:
    for x in np.random.default_rng(1).uniform(-103, 88, 200).astype(np.float32).tolist():
        n = round(multiply32(x, naive.LOG2_E))
        r = fma32(-n, naive.LN2_LOW, fma32(-n, naive.LN2_HIGH, x))
        p = float(naive.EXP[0])
        for c in naive.EXP[1:]:
            p = fma32(p, r, c)
        first = n // 2
        assert exp(np.float32([x]))[0] == multiply32(multiply32(p, 2.0**first), 2.0 ** (n - first))


def test_exp_edges() -> None:
    x = np.array([np.inf, 3e38, 89.5, 88.7229, -103.98, -104.5, -3e38, -np.inf, 0.0, -0.0], np.float32)
    assert exp(x).tolist() == [np.inf] * 4 + [0.0] * 4 + [1.0, 1.0]
    assert np.isnan(exp(np.float32([np.nan]))[0])
    assert np.isfinite(exp(np.float32([88.72283])))
    subnormal = np.linspace(-103.9, -87.4, 1000).astype(np.float32)
    error = np.abs(exp(subnormal) - np.exp(subnormal.astype(np.float64)))
    assert error.max() <= 2.0**-149 and exp(subnormal).min() > 0


def test_softplus() -> None:
    x = grid(-87.0, 25.0)
    want = np.log1p(np.exp(x.astype(np.float64)))
    assert relative(softplus(x), want) <= 3e-7
    edges = np.array([20.0, 20.00001, 1e30, np.inf, -np.inf, -200.0], np.float32)
    assert softplus(edges).tolist() == [*edges[:4].tolist(), 0.0, 0.0]
    assert np.isnan(softplus(np.float32([np.nan]))[0])


def test_softplus_equals_the_written_steps() -> None:
    rng = np.random.default_rng(2)
    for x in np.append(rng.uniform(-30, 20, 100), rng.uniform(-3, 0, 500)).astype(np.float32):
        e = exp(-np.abs(np.float32([x])))[0]
        s = e / np.float32(add32(2.0, e))
        t = multiply32(s, s)
        p = float(naive.LOG[0])
        for c in naive.LOG[1:]:
            p = fma32(p, t, c)
        log1p = fma32(multiply32(s, t), p, 2.0 * float(s))
        assert softplus(np.float32([x]))[0] == add32(max(float(x), 0.0), log1p)


def test_sigmoid_and_silu() -> None:
    x = grid(-87.0, 88.0)
    want = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert relative(sigmoid(x), want) <= 2e-7
    nonzero = x[x != 0]
    assert relative(silu(nonzero), nonzero / (1 + np.exp(-nonzero.astype(np.float64)))) <= 3e-7
    edges = np.array([-np.inf, -89.5, 0.0, 89.5, np.inf], np.float32)
    assert sigmoid(edges).tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert silu(edges[1:]).tolist() == [0.0, 0.0, 89.5, np.inf] and np.isnan(silu(edges)[0])
    one = float(np.float32(0.75))
    assert sigmoid(np.float32([one]))[0] == np.float32(1) / np.float32(add32(1.0, exp(np.float32([-one]))[0]))


@pytest.mark.parametrize("kind", ["exp", "sigmoid", "silu", "softplus"])
def test_activate_keeps_the_shape(kind: str) -> None:
    x = torch.linspace(-3, 3, 24).reshape(2, 3, 4)
    y = activate(kind, x)
    assert y.shape == x.shape and y.dtype == torch.float32
    assert np.array_equal(y.numpy(), naive.FUNCTIONS[kind](x.numpy()))


def patterns(step: int) -> torch.Tensor:
    """Every step-th float32 by its bits: subnormals, infinities and NaN among them."""
    return torch.from_numpy(np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32))


@pytest.mark.parametrize("kind", ["exp", "sigmoid", "silu", "softplus"])
def test_cpp_gives_the_bits_on_values_of_every_size(kind: Activation) -> None:
    x = torch.cat([patterns(99_991), torch.linspace(-110, 95, 20_001)])
    every_way(lambda n: [cpu.activate(n, kind, x)], [activate(kind, x)])


@pytest.mark.parametrize("kind", ["exp", "sigmoid", "silu", "softplus"])
def test_a_divisor_and_a_factor_are_a_rounding_each(kind: Activation) -> None:
    x = torch.cat([patterns(9_999_991), torch.linspace(-110, 95, 301)])
    factor = float(np.float32(0.3))
    whole = activate(kind, torch.from_numpy(x[-301:].numpy() / np.float32(3)))
    expected = activate(kind, x, 3.0, 0.3)
    assert expected[-301:].tolist() == [multiply32(y, factor) for y in whole.tolist()]
    every_way(lambda n: [cpu.activate(n, kind, x, 3.0, 0.3)], [expected])
    assert not same_bits(activate(kind, x[-301:] * (1 / 3), factor=0.3), expected[-301:])


def test_one_unit_in_the_last_place_shows() -> None:
    x = torch.linspace(-3, 3, 1000)
    moved = torch.from_numpy(np.nextafter(x.numpy(), np.float32(np.inf)))
    assert not same_bits(cpu.activate(native("avx2", 2), "silu", moved), activate("silu", x))
