"""Norms and dot products on the emulator: the specification's bits."""

import pytest
import torch

from kernels.device.device_cases import on_device
from kernels.layer_cases import normal, same_bits
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.norm import gpu, naive, prompt
from strata.kernels.ops import Activation

CASES = [(1, 5, 5), (3, 96, 32), (2, 128, 128), (2, 1030, 515), (2, 300, 300), (3, 2048, 2048), (1, 10500, 10500)]
"""rows, width, group: narrow and wide, with lanes that have no element in the last round, wider than threads keep"""


@pytest.mark.parametrize(("rows", "width", "group"), CASES)
@pytest.mark.parametrize("many", [1, 100])
def test_rms_norm(rows: int, width: int, group: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MANY", many)
    x = normal(1, rows, width)
    for weight in (None, normal(2, width), normal(3, group)):
        on_device(lambda d, w=weight: [gpu.rms_norm(d, x, w, 1e-6, group)], [naive.rms_norm(x, weight, 1e-6, group)])


@pytest.mark.parametrize(("rows", "width"), [(3, 544), (1, 2048), (1, 10500), (2, 300)])
def test_add_norm(rows: int, width: int) -> None:
    x, y, naive_ops = normal(1, rows, width), normal(2, rows, width), NaiveOps()
    for weight in (None, normal(3, width)):
        expected = naive_ops.add_norm(x, y, weight, 1e-6)
        on_device(lambda d, w=weight: GpuOps(d).add_norm(x, y, w, 1e-6), expected)
    device = HostDevice()
    total, normed = GpuOps(device).add_norm(x, y.flip(1).contiguous(), weight, 1e-6)
    assert device.launches == (1 if gpu.adds(width) else 2)
    assert not same_bits(total, expected[0]) and not same_bits(normed, expected[1])


def test_rows_of_a_prompt_that_lanes_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 17 values a lane, in two groups and in one, on more rows than a block has."""
    monkeypatch.setattr(gpu, "MANY", 1)
    x, y = normal(1, 35, 1088), normal(2, 35, 1088)
    for weight in (None, normal(3, 544), normal(4, 1088)):
        expected = naive.rms_norm(x, weight, 1e-6, 544)
        on_device(lambda d, w=weight: [prompt.rms_norm(d, x, w, 1e-6, 544)], [expected])
        assert not same_bits(prompt.rms_norm(HostDevice(), x.flip(1).contiguous(), weight, 1e-6, 544), expected)
    x, y = (t[:, :544].contiguous() for t in (x, y))
    both = NaiveOps().add_norm(x, y, normal(3, 544), 1e-6)
    on_device(lambda d: GpuOps(d).add_norm(x, y, normal(3, 544), 1e-6), both)
    device = HostDevice()
    turned = GpuOps(device).add_norm(x, y.flip(1).contiguous(), normal(3, 544), 1e-6)
    assert device.launches == 1
    assert not any(map(same_bits, turned, both))


@pytest.mark.parametrize("kind", gpu.GATED)
@pytest.mark.parametrize(("heads", "group"), [(2, 5), (3, 128), (1, 300)])
def test_gated_norm(kind: Activation, heads: int, group: int) -> None:
    x, gate = normal(1, 3, heads, group), normal(7, 3, heads * group)
    for weight in (None, normal(2, group)):
        expected = naive.gated_norm(kind, gate, x, weight, 1e-6, group)
        on_device(lambda d, w=weight: [gpu.gated_norm(d, kind, gate, x, w, 1e-6, group)], [expected])
    assert not same_bits(gpu.gated_norm(HostDevice(), kind, gate.flip(0), x, None, 1e-6, group), expected)


@pytest.mark.parametrize("kind", gpu.GATED)
@pytest.mark.parametrize("group", [96, 256])
def test_gated_norm_of_a_prompt(kind: Activation, group: int) -> None:
    x, gate = normal(1, 33, 2, group), normal(7, 33, 2 * group)
    for weight in (None, normal(2, group)):
        expected = naive.gated_norm(kind, gate, x, weight, 1e-6, group)
        on_device(lambda d, w=weight: [GpuOps(d).gated_norm(kind, gate, x, w, 1e-6, group)], [expected])
    assert not same_bits(GpuOps(HostDevice()).gated_norm(kind, gate.flip(0), x, weight, 1e-6, group), expected)


@pytest.mark.parametrize("shape", [(1, 5), (3, 2, 33), (2, 700)])
def test_l2_norm_and_row_dot(shape: tuple[int, ...]) -> None:
    a, b = normal(1, *shape), normal(2, *shape)
    on_device(lambda d: [gpu.l2_norm(d, a, 1e-6, 0.25)], [naive.l2_norm(a, 1e-6, 0.25)])
    on_device(lambda d: [gpu.row_dot(d, a, b)], [naive.row_dot(a, b)])


def test_non_finite_rows_stay_alone() -> None:
    x = normal(1, 3, 600)
    x[1, 40] = float("inf")
    expected = naive.rms_norm(x, None, 1e-6, 600)
    assert expected[1, 40].isnan() and expected[2].isfinite().all()
    on_device(lambda d: [gpu.rms_norm(d, x, None, 1e-6, 600)], [expected])


def test_the_order_of_a_row_shows_in_the_bits() -> None:
    a, b, device = normal(1, 20, 700), normal(2, 20, 700), HostDevice()
    found = gpu.row_dot(device, a.flip(1).contiguous(), b.flip(1).contiguous())
    assert not same_bits(found, naive.row_dot(a, b))
    torch.testing.assert_close(found, naive.row_dot(a, b))


def test_wrong_shapes_are_refused() -> None:
    device, x = HostDevice(), normal(1, 2, 96)
    with pytest.raises(ValueError, match="no multiple of the group of 64"):
        gpu.rms_norm(device, x, None, 1e-6, 64)
    with pytest.raises(ValueError, match="rms_norm: weight"):
        gpu.rms_norm(device, x, normal(2, 33), 1e-6, 32)
    with pytest.raises(ValueError, match="gated_norm: rows of 96 values"):
        gpu.gated_norm(device, "silu", x, x, None, 1e-6, 64)
    with pytest.raises(ValueError, match="gated_norm: 96 values for 192 gates"):
        gpu.gated_norm(device, "silu", x, x[:1], None, 1e-6, 32)
    with pytest.raises(ValueError, match="row_dot: b"):
        gpu.row_dot(device, x, normal(2, 2, 95))
