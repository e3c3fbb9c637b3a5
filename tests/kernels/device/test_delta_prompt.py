"""delta_rule for the rows of a prompt on the emulated device: the specification's outputs and states."""

import pytest
import torch

from kernels.layer_cases import held_rows, poisoned, rows_of, same_bits
from kernels.test_delta_rule import EPS, Case
from strata.kernels.delta_rule import prompt
from strata.kernels.host_device import HostDevice
from strata.kernels.ops import HeadPairing
from strata.kernels.views import Rows

SEGMENTS = ([(0, 0, 1)], [(1, 3, 8)], [(0, 0, 9), (2, 5, 24), (3, 0, 0)], [(1, 0, 17), (0, 2, 2)])


def on_device(case: Case, rows: Rows, pairing: HeadPairing) -> list[torch.Tensor]:
    state = case.state.clone()
    with poisoned():
        out = prompt.delta_rule(
            HostDevice(order=3), case.qkv, case.beta, case.decay, state, rows, case.key_heads, pairing, EPS
        )
    return [out, state]


@pytest.mark.parametrize("segments", SEGMENTS)
@pytest.mark.parametrize(("heads", "dims"), [((1, 2), (32, 32)), ((2, 4), (24, 64)), ((1, 1), (128, 32))])
@pytest.mark.parametrize("pairing", ["grouped", "tiled"])
def test_bits_of_the_specification(
    heads: tuple[int, int], dims: tuple[int, int], segments: list[tuple[int, int, int]], pairing: HeadPairing
) -> None:
    rows = rows_of(segments)
    case = Case(1, len(rows.slot), 4, heads, dims)
    for found, expected in zip(on_device(case, rows, pairing), case.naive(rows, pairing), strict=True):
        assert same_bits(found, expected)


def test_heads_that_this_kernel_does_not_take() -> None:
    case, rows = Case(1, 4, 2, (1, 2), (24, 40)), rows_of([(0, 0, 3), (1, 0, 1)])
    for found, expected in zip(on_device(case, rows, "grouped"), case.naive(rows, "grouped"), strict=True):
        assert same_bits(found, expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0])
def test_values_that_are_not_finite_and_zeros_of_either_sign(value: float) -> None:
    case, rows = Case(1, 11, 2, (1, 2), (32, 32)), rows_of([(0, 0, 10), (1, 0, 1)])
    case.qkv[1, 2 * 32 + 5] = value
    case.qkv[0, 32:64] = value
    case.state[0, 0, 3] = -0.0
    for found, expected in zip(on_device(case, rows, "grouped"), case.naive(rows, "grouped"), strict=True):
        assert same_bits(found, expected)


def test_a_changed_row_changes_what_follows_it_only() -> None:
    """Negative control."""
    case, rows = Case(1, 20, 1, (1, 2), (32, 32)), rows_of([(0, 0, 20)])
    expected = on_device(case, rows, "grouped")[0]
    case.qkv[9, 2 * 32 + 7] += 0.5
    differs = (on_device(case, rows, "grouped")[0] != expected).flatten(1).any(1)
    assert differs.tolist() == [False] * 9 + [True] * 11


def test_what_does_not_fit_is_refused() -> None:
    case, rows = Case(1, 1, 1, (2, 4), (8, 32)), rows_of([(0, 0, 1)])
    with pytest.raises(ValueError, match="do not fit"):
        prompt.delta_rule(HostDevice(), case.qkv, case.beta, case.decay, case.state, rows, 3, "grouped", EPS)


def test_held_states_stay() -> None:
    rows = held_rows([(2, 0, 4), (0, 3, 1), (1, 0, 3)], [0, 2])
    case = Case(1, 8, 4, (1, 2), (32, 32))
    found, expected = on_device(case, rows, "grouped"), case.naive(rows, "grouped")
    assert same_bits(found[0], expected[0]) and same_bits(found[1], expected[1])
    assert same_bits(found[1][[1, 2]], case.state[[1, 2]]) and not same_bits(found[1][0], case.state[0])
