"""stream_mix and stream_add on the emulator: the specification's bits."""

import pytest

from kernels.device.device_cases import on_device
from kernels.layer_cases import normal, same_bits
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


def test_the_order_of_streams_shows_in_the_bits() -> None:
    gate, x = normal(1, 20, 96), normal(2, 20, 96)
    turned = [t.reshape(20, 3, 32)[:, [2, 0, 1]].reshape(20, 96) for t in (gate, x)]
    assert not same_bits(gpu.stream_mix(HostDevice(), turned[0], turned[1], 3), naive.stream_mix(gate, x, 3))


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="10 values do not hold 4 streams"):
        gpu.stream_mix(HostDevice(), normal(1, 2, 10), normal(2, 2, 10), 4)
    with pytest.raises(ValueError, match="stream_add: residual"):
        gpu.stream_add(HostDevice(), normal(1, 2, 10), normal(2, 2, 4), normal(3, 2, 3), 3, 2.0)
