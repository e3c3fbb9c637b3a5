"""stream_mix and stream_add on the emulator: the specification's bits."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.device.device_cases import on_device
from kernels.layer_cases import normal, same_bits
from kernels.product_cases import weight as matrix
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.streams import gpu, naive


@pytest.mark.parametrize(("rows", "streams", "hidden"), [(1, 1, 5), (3, 4, 24), (2, 3, 300)])
def test_bits(rows: int, streams: int, hidden: int) -> None:
    gate, x = 3 * normal(1, rows, streams * hidden), normal(2, rows, streams * hidden)
    y, gates = normal(3, rows, hidden), normal(4, rows, streams)
    on_device(lambda d: [gpu.stream_mix(d, gate, x, streams)], [naive.stream_mix(gate, x, streams)])
    on_device(lambda d: [gpu.stream_add(d, x, y, gates, streams, 2.0)], [naive.stream_add(x, y, gates, streams, 2.0)])


@pytest.mark.parametrize("hidden", [24, 300])
def test_rows_of_a_prompt(hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MANY", 3)
    x, y, gates = normal(1, 3, 4 * hidden), normal(3, 3, hidden), normal(4, 3, 4)
    on_device(lambda d: [gpu.stream_add(d, x, y, gates, 4, 2.0)], [naive.stream_add(x, y, gates, 4, 2.0)])


def test_streams_of_a_prompt_that_lanes_keep() -> None:
    """More rows than a window has, 17 values of a stream for each lane, more streams than are asked for at once."""
    x, gate, y, gates = normal(1, 33, 5 * 544), 3 * normal(2, 33, 5 * 544), normal(3, 33, 544), normal(4, 33, 5)
    mixed = [naive.stream_mix(gate, x, 5)]
    on_device(lambda d: [GpuOps(d).stream_mix(gate, x, 5)], mixed)
    assert not same_bits(GpuOps(HostDevice()).stream_mix(gate.flip(1).contiguous(), x, 5), mixed[0])
    for weight in (None, normal(5, 544), normal(6, 5 * 544)):
        expected = NaiveOps().stream_add_norm(x, y, gates, 5, 2.0, weight, 1e-6)
        on_device(lambda d, w=weight: GpuOps(d).stream_add_norm(x, y, gates, 5, 2.0, w, 1e-6), expected)
    device = HostDevice()
    turned = GpuOps(device).stream_add_norm(x, y, gates.flip(1).contiguous(), 5, 2.0, weight, 1e-6)
    assert device.launches == 1
    assert not any(map(same_bits, turned, expected))


@pytest.mark.parametrize(("rows", "streams", "hidden"), [(2, 3, 544), (1, 4, 2560), (1, 2, 96)])
def test_an_addition_with_the_norm_that_follows(rows: int, streams: int, hidden: int) -> None:
    x, y, gates = normal(1, rows, streams * hidden), normal(3, rows, hidden), normal(4, rows, streams)
    for weight in (None, normal(5, hidden), normal(6, streams * hidden)):
        expected = NaiveOps().stream_add_norm(x, y, gates, streams, 2.0, weight, 1e-6)
        on_device(lambda d, w=weight: GpuOps(d).stream_add_norm(x, y, gates, streams, 2.0, w, 1e-6), expected)
    device = HostDevice()
    found = GpuOps(device).stream_add_norm(x, y, gates.flip(1).contiguous(), streams, 2.0, weight, 1e-6)
    assert device.launches == (1 if hidden > 512 else 2)
    assert not any(map(same_bits, found, expected))


@pytest.mark.parametrize(
    ("fmt", "rows", "hidden", "rank"), [("BF16", 1, 64, 320), ("F16", 6, 32, 64), ("F32", 2, 96, 32)]
)
def test_gates_of_a_low_rank_in_one_launch(fmt: str, rows: int, hidden: int, rank: int) -> None:
    up = replace(matrix(fmt, 4 * hidden, rank, np.random.default_rng(1)), scale=0.7)
    low, x = 4 * normal(2, rows, rank), normal(3, rows, 4 * hidden)
    expected = NaiveOps().low_rank_mix(low, up, x, 4)
    on_device(lambda d: [GpuOps(d).low_rank_mix(low, up, x, 4)], [expected])
    device = HostDevice()
    turned = GpuOps(device).low_rank_mix(low.flip(1).contiguous(), up, x, 4)
    assert device.launches == 1
    assert not same_bits(turned, expected)


@pytest.mark.parametrize(("fmt", "streams"), [("Q8_0", 4), ("BF16", 2)])
def test_gates_of_other_kinds_take_several(fmt: str, streams: int) -> None:
    up = matrix(fmt, streams * 32, 32, np.random.default_rng(1))
    low, x = normal(2, 2, 32), normal(3, 2, streams * 32)
    on_device(lambda d: [GpuOps(d).low_rank_mix(low, up, x, streams)], [NaiveOps().low_rank_mix(low, up, x, streams)])


def test_the_order_of_streams_shows_in_the_bits() -> None:
    gate, x = normal(1, 20, 96), normal(2, 20, 96)
    turned = [t.reshape(20, 3, 32)[:, [2, 0, 1]].reshape(20, 96) for t in (gate, x)]
    assert not same_bits(gpu.stream_mix(HostDevice(), turned[0], turned[1], 3), naive.stream_mix(gate, x, 3))


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="10 values do not hold 4 streams"):
        gpu.stream_mix(HostDevice(), normal(1, 2, 10), normal(2, 2, 10), 4)
    with pytest.raises(ValueError, match="stream_add: residual"):
        gpu.stream_add(HostDevice(), normal(1, 2, 10), normal(2, 2, 4), normal(3, 2, 3), 3, 2.0)
