"""Elementwise arithmetic: against float64 formulas, and C++ against the specification bit for bit."""

import pytest
import torch

from kernels.layer_cases import every_way, native, normal, same_bits
from strata.kernels.elementwise import cpu, naive
from strata.kernels.ops import Activation

SHAPES = [(1, 5), (3, 257), (40, 4096)]
SPECIAL = torch.tensor([[0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, -3e38, 1e-6]])


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_quotients_and_products(shape: tuple[int, int]) -> None:
    x, y = normal(1, *shape), normal(2, *shape)
    for values, others in ((x, y), (SPECIAL, SPECIAL.flip(1))):
        every_way(lambda n, a=values, b=others: [cpu.add(n, a, b)], [naive.add(values, others)])
        every_way(lambda n, a=values: [cpu.divide(n, a, 3.0)], [naive.divide(values, 3.0)])
        every_way(lambda n, a=values: [cpu.multiply(n, a, 0.1)], [naive.multiply(values, 0.1)])
    assert torch.equal(naive.add(x, y), x + y)
    assert torch.equal(naive.divide(x, 3.0), x / 3.0)
    assert torch.equal(naive.multiply(x, 0.1), x * 0.1)
    assert not same_bits(cpu.divide(native("portable", 1), x, 3.0), cpu.multiply(native("portable", 1), x, 1 / 3.0))


@pytest.mark.parametrize("kind", ["silu", "sigmoid", "softplus", "exp"])
def test_gates(kind: Activation) -> None:
    g, x = normal(1, 20, 700), normal(2, 20, 700)
    functions = {
        "silu": torch.nn.functional.silu,
        "sigmoid": torch.sigmoid,
        "softplus": torch.nn.functional.softplus,
        "exp": torch.exp,
    }
    expected = naive.gate(kind, g, x)
    torch.testing.assert_close(expected.double(), functions[kind](g.double()) * x.double(), rtol=1e-5, atol=1e-6)
    every_way(lambda n: [cpu.gate(n, kind, g, x)], [expected])
    every_way(lambda n: [cpu.gate(n, kind, SPECIAL, SPECIAL.flip(1))], [naive.gate(kind, SPECIAL, SPECIAL.flip(1))])


def test_the_root_keeps_its_sign() -> None:
    x = normal(1, 9, 130)
    expected = naive.signed_root(x, 1e-6)
    torch.testing.assert_close(expected, x.sign() * x.abs().clamp_min(1e-6).sqrt())
    every_way(lambda n: [cpu.signed_root(n, x, 1e-6)], [expected])
    every_way(lambda n: [cpu.signed_root(n, SPECIAL, 1e-6)], [naive.signed_root(SPECIAL, 1e-6)])
    assert naive.signed_root(SPECIAL, 1e-6)[0, :2].tolist() == [0, 0]
    assert not same_bits(
        cpu.signed_root(native("portable", 1), x, 1e-6), cpu.signed_root(native("portable", 1), x, 0.5)
    )


@pytest.mark.parametrize(("rows", "heads"), [(1, 4), (3, 32), (600, 16)])
def test_rates_of_the_delta_rule(rows: int, heads: int) -> None:
    b, a, rate, bias = 3 * normal(1, rows, heads), 3 * normal(2, rows, heads), -normal(3, heads).abs(), normal(4, heads)
    expected = naive.delta_rates(b, a, rate, bias)
    torch.testing.assert_close(expected[0], torch.sigmoid(b))
    torch.testing.assert_close(expected[1], torch.exp(rate * torch.nn.functional.softplus(a + bias)))
    every_way(lambda n: cpu.delta_rates(n, b, a, rate, bias), expected)
    swapped = cpu.delta_rates(native("portable", 1), a, b, rate, bias)
    assert not same_bits(swapped[0], expected[0]) and not same_bits(swapped[1], expected[1])


@pytest.mark.parametrize(("rows", "streams", "hidden"), [(1, 1, 5), (3, 4, 24), (40, 4, 640)])
def test_a_row_is_spread_over_its_streams(rows: int, streams: int, hidden: int) -> None:
    weights, x = normal(1, rows, streams), normal(2, rows, hidden)
    expected = naive.spread(weights, x)
    assert torch.equal(expected.view(rows, streams, hidden), weights[:, :, None] * x[:, None, :])
    every_way(lambda n: [cpu.spread(n, weights, x)], [expected])


def test_shapes_that_do_not_fit_are_refused() -> None:
    n = native("portable", 1)
    x, y = normal(1, 2, 8), normal(2, 2, 9)
    for add in (naive.add, lambda a, b: cpu.add(n, a, b)):
        with pytest.raises(ValueError, match="add"):
            add(x, y)
    for gate in (naive.gate, lambda kind, a, b: cpu.gate(n, kind, a, b)):
        with pytest.raises(ValueError, match="gate"):
            gate("silu", x, y)
    for spread in (naive.spread, lambda a, b: cpu.spread(n, a, b)):
        with pytest.raises(ValueError, match="spread"):
            spread(normal(1, 3, 2), x)
