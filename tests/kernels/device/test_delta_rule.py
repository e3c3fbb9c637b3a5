"""delta_rule on the emulated device: the specification's outputs and states."""

import pytest
import torch

from kernels.layer_cases import held_rows, poisoned, rows_of, same_bits
from kernels.test_delta_rule import CASES, EPS, Case
from strata.kernels.delta_rule import gpu
from strata.kernels.host_device import HostDevice
from strata.kernels.ops import HeadPairing
from strata.kernels.views import Rows


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
