"""rms_norm, l2_norm and row_dot: against float64 formulas, and C++ against the specification bit for bit."""

import pytest
import torch

from kernels.layer_cases import every_way, native, normal, same_bits
from strata.kernels.norm import cpu, naive

SIZES = [1, 7, 24, 31, 32, 33, 64, 100, 128, 1000]


@pytest.mark.parametrize("dim", SIZES)
def test_specification_matches_the_formulas(dim: int) -> None:
    x, w, y = normal(1, 5, dim), normal(2, dim), normal(3, 5, dim)
    d = x.double()
    expected = d / (d.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w.double()
    torch.testing.assert_close(naive.rms_norm(x, w, 1e-6, dim).double(), expected, rtol=2e-6, atol=1e-6)
    expected = d / (d.square().sum(-1, keepdim=True) + 1e-6).sqrt() * 0.25
    torch.testing.assert_close(naive.l2_norm(x, 1e-6, 0.25).double(), expected, rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(naive.row_dot(x, y).double(), (d * y.double()).sum(-1), rtol=1e-5, atol=1e-5)


def test_groups_have_their_own_mean() -> None:
    x = torch.cat([normal(1, 3, 32), 1000 * normal(2, 3, 32)], 1)
    both = naive.rms_norm(x, None, 1e-6, 32)
    assert same_bits(both[:, :32].contiguous(), naive.rms_norm(x[:, :32].contiguous(), None, 1e-6, 32))
    assert not torch.allclose(both, naive.rms_norm(x, None, 1e-6, 64))


@pytest.mark.parametrize("dim", SIZES)
@pytest.mark.parametrize("rows", [1, 3, 700])
def test_cpp_equals_the_specification(dim: int, rows: int) -> None:
    rows = rows if dim < 200 else min(rows, 70)
    x, w, y = normal(1, rows, dim), normal(2, dim), normal(3, rows, dim)
    every_way(lambda n: [cpu.rms_norm(n, x, w, 1e-5, dim)], [naive.rms_norm(x, w, 1e-5, dim)])
    every_way(lambda n: [cpu.rms_norm(n, x, None, 1e-5, dim)], [naive.rms_norm(x, None, 1e-5, dim)])
    every_way(lambda n: [cpu.l2_norm(n, x, 1e-6, 0.3)], [naive.l2_norm(x, 1e-6, 0.3)])
    every_way(lambda n: [cpu.row_dot(n, x, y)], [naive.row_dot(x, y)])


@pytest.mark.parametrize("weight_length", [24, 96])
def test_weights_of_a_group_and_of_a_row(weight_length: int) -> None:
    x, w = normal(1, 2, 5, 96), normal(2, weight_length)
    expected = naive.rms_norm(x, w, 1e-6, 24)
    every_way(lambda n: [cpu.rms_norm(n, x, w, 1e-6, 24)], [expected])
    changed = w.clone()
    changed[-1] += 1
    assert not same_bits(cpu.rms_norm(native("portable", 1), x, changed, 1e-6, 24), expected)


def test_bits_tell_a_changed_lane_order() -> None:
    x, y = normal(1, 50, 256), normal(2, 50, 256)
    order = torch.arange(256)
    order[[0, 33]] = order[[33, 0]]
    moved = cpu.row_dot(native("portable", 1), x[:, order].contiguous(), y[:, order].contiguous())
    assert not same_bits(moved, naive.row_dot(x, y))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 3e38, 1e-42, -0.0])
def test_extreme_values_agree(value: float) -> None:
    x = normal(1, 4, 40)
    x[2, 37] = value
    every_way(lambda n: [cpu.rms_norm(n, x, None, 1e-6, 40)], [naive.rms_norm(x, None, 1e-6, 40)])
    every_way(lambda n: [cpu.l2_norm(n, x, 0.0, 1.0)], [naive.l2_norm(x, 0.0, 1.0)])
    every_way(lambda n: [cpu.row_dot(n, x, x)], [naive.row_dot(x, x)])
    if value != value:
        assert (
            naive.rms_norm(x, None, 1e-6, 40)[2].isnan().all()
            and not naive.rms_norm(x, None, 1e-6, 40)[1].isnan().any()
        )


def test_wrong_shapes_are_refused() -> None:
    n = native("portable", 1)
    with pytest.raises(ValueError, match="multiple of the group of 7"):
        cpu.rms_norm(n, normal(1, 2, 10), None, 1e-6, 7)
    with pytest.raises(ValueError, match=r"rms_norm: weight: expected contiguous torch.float32 \(10,\)"):
        cpu.rms_norm(n, normal(1, 2, 10), normal(1, 5), 1e-6, 10)
    with pytest.raises(ValueError, match="not contiguous"):
        cpu.l2_norm(n, normal(1, 10, 2).t(), 1e-6, 1.0)
    with pytest.raises(ValueError, match="row_dot: b"):
        cpu.row_dot(n, normal(1, 2, 10), normal(1, 2, 9))
    with pytest.raises(ValueError, match=r"torch.float64"):
        cpu.row_dot(n, normal(1, 2, 10).double(), normal(1, 2, 10))
