"""delta_step on the emulated device: the bits of delta_inputs and gated_delta_rule, one after the other."""

from dataclasses import replace
from typing import Literal

import pytest
import torch

from kernels.device import device_cases as cases
from kernels.layer_cases import held_rows, normal, rows_of, same_bits
from kernels.test_delta_rule import EPS
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.ops import HeadPairing, Ops
from strata.kernels.views import DeltaInputs, HeadGate, Rows

SLOTS = 3


class Net:
    """A row's inputs and the states of some slots."""

    def __init__(self, heads: tuple[int, int], dims: tuple[int, int], rows: int = 1, taps: int = 4) -> None:
        self.heads, (keys, values) = heads, heads
        channels = 2 * keys * dims[0] + values * dims[1]
        history = normal(3, SLOTS, taps - 1, channels)
        b, a = normal(4, rows, values), normal(5, rows, values)
        self.read = DeltaInputs(
            normal(1, rows, channels),
            normal(2, channels, taps),
            history,
            b,
            a,
            -normal(6, values).abs(),
            normal(7, values),
        )
        self.state = normal(8, SLOTS, values, *dims)
        self.gate = HeadGate("sigmoid", normal(9, rows, values * dims[1]), normal(10, dims[1]), 1e-5)

    def run(self, ops: Ops, rows: Rows, pairing: HeadPairing = "tiled") -> list[torch.Tensor]:
        """The result, and what states and histories became."""
        state, history = self.state.clone(), self.read.history.clone()
        read = replace(self.read, history=history)
        return [ops.delta_step(read, state, rows, self.heads[0], pairing, EPS, self.gate), state, history]


@pytest.mark.parametrize("heads", [(1, 1), (2, 4), (2, 6)])
@pytest.mark.parametrize("dims", [(24, 64), (32, 32), (128, 128)])
@pytest.mark.parametrize("kind", ["silu", "sigmoid"])
def test_bits_of_the_specification(
    heads: tuple[int, int], dims: tuple[int, int], kind: Literal["silu", "sigmoid"]
) -> None:
    net, rows = Net(heads, dims), rows_of([(1, 5, 1)])
    net.gate = replace(net.gate, kind=kind)
    for pairing in ("grouped", "tiled"):
        cases.on_device(lambda d, p=pairing: net.run(GpuOps(d), rows, p), net.run(NaiveOps(), rows, pairing))
    device = HostDevice()
    for _ in range(2):  # counters are zeros again
        net.run(GpuOps(device), rows)
    assert device.launches == 2 and not device.counters(heads[0]).any()


def test_a_changed_tap_and_history_change_the_result() -> None:
    """Negative control: of a key that three heads share, and of a value."""
    net, rows = Net((2, 6), (32, 32)), rows_of([(0, 0, 1)])
    expected = net.run(NaiveOps(), rows)
    for channel, changed in ((3, {0, 2, 4}), (2 * 2 * 32 + 32 + 5, {1})):
        other = Net((2, 6), (32, 32))
        other.read.history[0, 1, channel] += 1.0
        y, _, history = other.run(GpuOps(HostDevice()), rows)
        heads = (y != expected[0]).view(6, 32).any(1).nonzero()[:, 0].tolist()
        assert set(heads) == changed and not same_bits(history, expected[2])


def test_other_calls_are_several_launches() -> None:
    cases_of = [
        (Net((1, 2), (32, 32), rows=2), rows_of([(0, 0, 2)])),
        (Net((1, 2), (32, 32)), held_rows([(0, 0, 1)], [0])),
        (Net((1, 2), (32, 32), taps=3), rows_of([(0, 0, 1)])),
        (Net((1, 2), (32, 40)), rows_of([(0, 0, 1)])),
    ]
    for net, rows in cases_of:
        device = HostDevice()
        assert all(map(same_bits, net.run(GpuOps(device), rows), net.run(NaiveOps(), rows)))
        assert device.launches > 1
