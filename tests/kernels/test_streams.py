"""stream_mix and stream_add: against float64 formulas, and C++ against the specification bit for bit."""

import pytest
import torch

from kernels.layer_cases import every_way, native, normal, same_bits
from strata.kernels.streams import cpu, naive

SIZES = [(1, 1, 5), (3, 4, 24), (2, 3, 600), (40, 4, 640)]
"""rows, streams, hidden"""


@pytest.mark.parametrize(("rows", "streams", "hidden"), SIZES)
def test_formula_and_cpp(rows: int, streams: int, hidden: int) -> None:
    gate, x = 3 * normal(1, rows, streams * hidden), normal(2, rows, streams * hidden)
    y, gates = normal(3, rows, hidden), normal(4, rows, streams)
    mixed = naive.stream_mix(gate, x, streams)
    exact = (torch.sigmoid(gate.double()) * x.double()).reshape(rows, streams, hidden).mean(1)
    torch.testing.assert_close(mixed.double(), exact, rtol=1e-5, atol=1e-6)
    added = naive.stream_add(x, y, gates, 3.0, 2.0)
    weights = 2 * torch.sigmoid(gates.double() / 3)
    exact = x.double().reshape(rows, streams, hidden) + weights[:, :, None] * y.double()[:, None]
    torch.testing.assert_close(added.double(), exact.reshape(rows, -1), rtol=1e-5, atol=1e-6)
    every_way(lambda n: [cpu.stream_mix(n, gate, x, streams)], [mixed])
    every_way(lambda n: [cpu.stream_add(n, x, y, gates, 3.0, 2.0)], [added])


def test_a_changed_gate_changes_its_stream_only() -> None:
    x, y, gates, n = normal(1, 2, 96), normal(2, 2, 32), normal(3, 2, 3), native("avx2", 2)
    expected = cpu.stream_add(n, x, y, gates, 3.0, 2.0)
    gates[1, 2] += 1
    differs = (cpu.stream_add(n, x, y, gates, 3.0, 2.0) != expected).reshape(2, 3, 32).any(2)
    assert differs.tolist() == [[False, False, False], [False, False, True]]


@pytest.mark.parametrize(("divisor", "factor"), [(2.0, 2.0), (3.0, 1.0)])
def test_divisor_and_factor_count(divisor: float, factor: float) -> None:
    x, y, gates, n = normal(1, 2, 96), normal(2, 2, 32), normal(3, 2, 3), native("avx2", 2)
    assert not same_bits(cpu.stream_add(n, x, y, gates, divisor, factor), naive.stream_add(x, y, gates, 3.0, 2.0))


def test_the_order_of_streams_shows_in_the_bits() -> None:
    gate, x, n = normal(1, 20, 96), normal(2, 20, 96), native("avx2", 2)
    turned = [t.reshape(20, 3, 32)[:, [2, 0, 1]].reshape(20, 96) for t in (gate, x)]
    assert not same_bits(cpu.stream_mix(n, turned[0], turned[1], 3), cpu.stream_mix(n, gate, x, 3))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_values_agree(value: float) -> None:
    gate, x = normal(1, 3, 64), normal(2, 3, 64)
    x[1, 40] = value
    gate[0, 9] = value
    expected = naive.stream_mix(gate, x, 2)
    assert not expected[1, 8].isfinite() and expected[2].isfinite().all()
    every_way(lambda n: [cpu.stream_mix(n, gate, x, 2)], [expected])
    every_way(
        lambda n: [cpu.stream_add(n, x, gate[:, :32].contiguous(), normal(3, 3, 2), 2.0, 1.0)],
        [naive.stream_add(x, gate[:, :32].contiguous(), normal(3, 3, 2), 2.0, 1.0)],
    )


def test_wrong_shapes_are_refused() -> None:
    n = native("portable", 1)
    with pytest.raises(ValueError, match="10 values do not hold 4 streams"):
        cpu.stream_mix(n, normal(1, 2, 10), normal(2, 2, 10), 4)
    with pytest.raises(ValueError, match="stream_add: residual"):
        cpu.stream_add(n, normal(1, 2, 10), normal(2, 2, 4), normal(3, 2, 3), 3, 2.0)
