"""causal_conv on the emulated device: the specification's outputs and histories."""

from dataclasses import replace

import pytest
import torch

from kernels.layer_cases import held_rows, normal, poisoned, rows_of, same_bits
from strata.kernels.conv import gpu, naive
from strata.kernels.host_device import HostDevice

CASES = [
    # channels, taps, dilation, segments
    (5, 4, 1, [(0, 0, 1)]),
    (7, 6, 1, [(1, 0, 1), (0, 1, 2)]),
    (300, 4, 1, [(1, 0, 2), (0, 3, 7)]),
    (33, 3, 5, [(2, 0, 3), (0, 9, 12)]),
    (8, 1, 1, [(0, 0, 4)]),
    (40, 4, 3, [(1, 0, 40), (2, 5, 3)]),
    (6, 4, 1, [(1, 0, 37), (0, 5, 3)]),
]


@pytest.mark.parametrize(("channels", "taps", "dilation", "segments"), CASES)
@pytest.mark.parametrize("most", [32, 0])
def test_bits_of_the_specification(
    monkeypatch: pytest.MonkeyPatch,
    channels: int,
    taps: int,
    dilation: int,
    segments: list[tuple[int, int, int]],
    most: int,
) -> None:
    rows = rows_of(segments)
    x, weight = normal(1, len(rows.slot), channels), normal(2, channels, taps)
    history = normal(3, 3, (taps - 1) * dilation, channels)
    past, changed = history.clone(), history.clone()
    monkeypatch.setattr(gpu, "MOST_ROWS", most)
    with poisoned():
        found = gpu.causal_conv(HostDevice(order=2), x, weight, past, rows, dilation)
    assert same_bits(found, naive.causal_conv(x, weight, changed, rows, dilation)) and same_bits(past, changed)


def test_a_changed_row_of_history_shows() -> None:
    """Negative control."""
    rows, x, weight, history = rows_of([(0, 0, 1)]), normal(1, 1, 8), normal(2, 8, 4), normal(3, 1, 3, 8)
    found = gpu.causal_conv(HostDevice(), x, weight, history.clone(), rows, 1)
    history[0, 1, 5] += 1.0
    differs = gpu.causal_conv(HostDevice(), x, weight, history, rows, 1) != found
    assert differs.nonzero().tolist() == [[0, 5]]
    with pytest.raises(ValueError, match="dilation 0 must be at least 1"):
        gpu.causal_conv(HostDevice(), x, weight, history, rows, 0)


def test_the_history_of_a_step_without_rows_stays() -> None:
    history = normal(3, 2, 3, 8)
    before = history.clone()
    gpu.causal_conv(HostDevice(), normal(1, 1, 8), normal(2, 8, 4), history, rows_of([(1, 0, 1)]), 1)
    assert torch.equal(history[0], before[0]) and not torch.equal(history[1], before[1])


@pytest.mark.parametrize("most", [32, 0])
def test_held_histories_stay_and_are_carried_on(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    rows = held_rows([(2, 0, 4), (0, 3, 1), (1, 0, 3)], [0, 2])
    x, weight, history = normal(1, 8, 40), normal(2, 40, 4), normal(3, 4, 9, 40)
    past, expected = history.clone(), history.clone()
    monkeypatch.setattr(gpu, "MOST_ROWS", most)
    found = gpu.causal_conv(HostDevice(order=2), x, weight, past, rows, 3)
    assert same_bits(found, naive.causal_conv(x, weight, expected, rows, 3)) and same_bits(past, expected)
    assert same_bits(past[[1, 2]], history[[1, 2]]) and not same_bits(past[0], history[0])
    again = replace(rows, segments=torch.tensor([[2, 0, 2], [1, 5, 3]], dtype=torch.int32), held=None)
    gpu.carry_rows(HostDevice(order=1), x, past, again)
    naive.carry_rows(x, expected, again)
    assert same_bits(past, expected) and not same_bits(past[1], history[1])
