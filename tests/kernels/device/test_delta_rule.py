"""delta_rule on the emulated device: the specification's outputs and states."""

from dataclasses import replace
from typing import Literal

import pytest
import torch

from kernels.device import device_cases as cases
from kernels.layer_cases import held_rows, normal, poisoned, rows_of, same_bits
from kernels.test_delta_rule import CASES, EPS, Case
from strata.kernels.delta_rule import gpu
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.ops import HeadPairing, Ops
from strata.kernels.views import HeadGate, Rows


def on_device(case: Case, rows: Rows, pairing: HeadPairing) -> list[torch.Tensor]:
    state = case.state.clone()
    with poisoned():
        out = gpu.delta_rule(
            HostDevice(order=3), case.qkv, case.beta, case.decay, state, rows, case.key_heads, pairing, EPS
        )
    return [out, state]


@pytest.mark.parametrize(("heads", "dims", "segments"), CASES)
@pytest.mark.parametrize("pairing", ["grouped", "tiled"])
def test_bits_of_the_specification(
    heads: tuple[int, int], dims: tuple[int, int], segments: list[tuple[int, int, int]], pairing: HeadPairing
) -> None:
    rows = rows_of(segments)
    case = Case(1, len(rows.slot), 4, heads, dims)
    for found, expected in zip(on_device(case, rows, pairing), case.naive(rows, pairing), strict=True):
        assert same_bits(found, expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite(value: float) -> None:
    case, rows = Case(1, 4, 2, (1, 2), (24, 40)), rows_of([(0, 0, 3), (1, 0, 1)])
    case.qkv[1, 2 * 24 + 5] = value
    for found, expected in zip(on_device(case, rows, "grouped"), case.naive(rows, "grouped"), strict=True):
        assert same_bits(found, expected)


def test_a_changed_state_value_changes_its_column() -> None:
    """Negative control."""
    case, rows = Case(1, 3, 1, (1, 2), (32, 40)), rows_of([(0, 0, 3)])
    expected = on_device(case, rows, "grouped")[0]
    case.state[0, 1, 17, 33] += 0.5
    differs = (on_device(case, rows, "grouped")[0] != expected).any(0)
    assert differs.nonzero().tolist() == [[1, 33]]


def test_what_does_not_fit_is_refused() -> None:
    case, rows = Case(1, 1, 1, (2, 4), (8, 8)), rows_of([(0, 0, 1)])
    with pytest.raises(ValueError, match="do not fit"):
        gpu.delta_rule(HostDevice(), case.qkv, case.beta, case.decay, case.state, rows, 3, "grouped", EPS)
    wide = Case(1, 1, 1, (1, 1), (260, 8))
    with pytest.raises(ValueError, match="keys of 260 dims, expected 256 at most"):
        gpu.delta_rule(HostDevice(), wide.qkv, wide.beta, wide.decay, wide.state, rows, 1, "grouped", EPS)


def test_held_states_stay() -> None:
    rows = held_rows([(2, 0, 4), (0, 3, 1), (1, 0, 3)], [0, 2])
    case = Case(1, 8, 4, (1, 2), (32, 32))
    found, expected = on_device(case, rows, "grouped"), case.naive(rows, "grouped")
    assert same_bits(found[0], expected[0]) and same_bits(found[1], expected[1])
    assert same_bits(found[1][[1, 2]], case.state[[1, 2]]) and not same_bits(found[1][0], case.state[0])


@pytest.mark.parametrize("channels", [5, 300])
def test_what_the_rule_reads_in_one_launch(channels: int) -> None:
    rows = held_rows([(1, 0, 1), (0, 3, 7), (2, 0, 2)], [2])
    x, weight, history = normal(1, 10, channels), normal(2, channels, 4), normal(3, 3, 3, channels)
    b, a, rate, bias = normal(4, 10, 6), normal(5, 10, 6), -normal(6, 6).abs(), normal(7, 6)
    past, changed = history.clone(), history.clone()
    expected = (*NaiveOps().delta_inputs(x, weight, past, rows, b, a, rate, bias), past)

    def run(device: HostDevice) -> list[torch.Tensor]:
        mine = history.clone()
        return [*GpuOps(device).delta_inputs(x, weight, mine, rows, b, a, rate, bias), mine]

    cases.on_device(run, expected)
    device = HostDevice()
    found = GpuOps(device).delta_inputs(x, weight, changed, rows, a, b, rate, bias)
    assert device.launches == 1
    assert same_bits(found[0], expected[0]) and not same_bits(found[1], expected[1])


def test_other_convolutions_take_two_launches() -> None:
    rows, device = rows_of([(0, 0, 2)]), HostDevice()
    x, weight, history = normal(1, 2, 8), normal(2, 8, 3), normal(3, 1, 2, 8)
    b, a, rate, bias = normal(4, 2, 6), normal(5, 2, 6), -normal(6, 6).abs(), normal(7, 6)
    found = GpuOps(device).delta_inputs(x, weight, history.clone(), rows, b, a, rate, bias)
    assert device.launches == 2
    assert all(map(same_bits, found, NaiveOps().delta_inputs(x, weight, history, rows, b, a, rate, bias)))


@pytest.mark.parametrize(
    ("heads", "dims", "segments"),
    [
        ((2, 4), (24, 64), [(1, 0, 1), (0, 5, 5), (2, 0, 2)]),
        ((1, 2), (32, 32), [(0, 0, 1)]),
        ((1, 3), (128, 128), [(0, 3, 2)]),
    ],
)
@pytest.mark.parametrize("kind", ["silu", "sigmoid"])
def test_outputs_behind_a_gate_in_the_same_launch(
    heads: tuple[int, int],
    dims: tuple[int, int],
    segments: list[tuple[int, int, int]],
    kind: Literal["silu", "sigmoid"],
) -> None:
    rows = held_rows(segments, [1])
    case = Case(1, len(rows.slot), 4, heads, dims)
    gate = HeadGate(kind, normal(9, len(rows.slot), heads[1] * dims[1]), normal(8, dims[1]), 1e-5)

    def run(ops: Ops, gate: HeadGate) -> list[torch.Tensor]:
        state = case.state.clone()
        given = (case.qkv, case.beta, case.decay, state, rows, case.key_heads)
        return [ops.gated_delta_rule(*given, "tiled", EPS, gate), state]

    expected = run(NaiveOps(), gate)
    cases.on_device(lambda d: run(GpuOps(d), gate), expected)
    device = HostDevice()
    y, state = run(GpuOps(device), replace(gate, weight=gate.weight.flip(0).contiguous()))
    assert device.launches == (1 if len(rows.slot) <= gpu.MOST_ROWS else 2)
    assert not same_bits(y, expected[0]) and same_bits(state, expected[1])


def test_heads_of_other_widths_take_a_launch_more() -> None:
    case, rows, device = Case(1, 2, 1, (1, 2), (24, 40)), rows_of([(0, 0, 2)]), HostDevice()
    gate = HeadGate("silu", normal(9, 2, 80), normal(8, 40), 1e-5)
    found, expected = (
        ops.gated_delta_rule(case.qkv, case.beta, case.decay, case.state.clone(), rows, 1, "grouped", EPS, gate)
        for ops in (GpuOps(device), NaiveOps())
    )
    assert device.launches == 2 and same_bits(found, expected)
