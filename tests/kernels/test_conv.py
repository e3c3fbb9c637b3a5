"""causal_conv: against float64 convolution, C++ against the specification, and any split against the whole."""

import itertools

import pytest
import torch

from kernels.layer_cases import every_way, held_rows, native, normal, rows_of, same_bits
from strata.kernels.conv import cpu, naive
from strata.kernels.views import Rows

CASES = [(1, 1, 1), (16, 4, 1), (100, 4, 3), (64, 2, 2), (193, 3, 1), (555, 4, 1), (300, 5, 1)]
"""channels, taps, dilation"""


@pytest.mark.parametrize(("channels", "taps", "dilation"), CASES)
@pytest.mark.parametrize("segments", [[(1, 0, 1)], [(2, 5, 7), (0, 3, 1), (1, 0, 20)]])
def test_formula_and_cpp(channels: int, taps: int, dilation: int, segments: list[tuple[int, int, int]]) -> None:
    rows, span = rows_of(segments), (taps - 1) * dilation
    x, weight, history = normal(1, len(rows.slot), channels), normal(2, channels, taps), normal(3, 4, span, channels)
    after = history.clone()
    expected = naive.causal_conv(x, weight, after, rows, dilation)
    for slot, first, length in rows.segments.tolist():
        here = torch.cat([history[slot], x[first : first + length]])
        kernel = weight.double()[:, None]
        summed = torch.nn.functional.conv1d(here.double().T[None], kernel, dilation=dilation, groups=channels)[0].T
        torch.testing.assert_close(
            expected[first : first + length].double(), summed * torch.sigmoid(summed), rtol=1e-5, atol=1e-5
        )
        assert same_bits(after[slot], here[len(here) - span :])
    assert same_bits(after[3], history[3])

    def run(n: object) -> list[torch.Tensor]:
        state = history.clone()
        return [cpu.causal_conv(n, x, weight, state, rows, dilation), state]  # type: ignore[arg-type]

    every_way(run, [expected, after])  # type: ignore[arg-type]


@pytest.mark.parametrize("channels", [48, 640])
def test_every_split_gives_the_same_bits(channels: int) -> None:
    x, weight, n = normal(1, 6, channels), normal(2, channels, 4), native("avx2", 2)
    whole = torch.zeros(1, 6, channels)
    expected = cpu.causal_conv(n, x, weight, whole, rows_of([(0, 0, 6)]), 2)
    for cuts in range(32):
        bounds = [0] + [i + 1 for i in range(5) if cuts >> i & 1] + [6]
        history, parts = torch.zeros(1, 6, channels), []
        for a, b in itertools.pairwise(bounds):
            parts.append(cpu.causal_conv(n, x[a:b], weight, history, rows_of([(0, a, b - a)]), 2))
        assert same_bits(torch.cat(parts), expected) and same_bits(history, whole)


def test_slots_together_equal_each_alone_and_others_stay() -> None:
    x, weight, n = normal(1, 9, 72), normal(2, 72, 3), native("avx2", 2)
    start = normal(3, 5, 2, 72)
    together = start.clone()
    out = cpu.causal_conv(n, x, weight, together, rows_of([(3, 0, 2), (0, 7, 6), (2, 1, 1)]), 1)
    alone = start.clone()
    for slot, first, length in ((3, 0, 2), (0, 2, 6), (2, 8, 1)):
        part = cpu.causal_conv(n, x[first : first + length], weight, alone, rows_of([(slot, 0, length)]), 1)
        assert same_bits(part, out[first : first + length])
    assert same_bits(alone, together)
    assert same_bits(together[[1, 4]], start[[1, 4]])


def test_a_changed_history_value_changes_one_channel() -> None:
    x, weight, history, n = normal(1, 3, 20), normal(2, 20, 4), normal(3, 1, 3, 20), native("portable", 1)
    rows = rows_of([(0, 9, 3)])
    expected = cpu.causal_conv(n, x, weight, history.clone(), rows, 1)
    history[0, 2, 11] += 1
    found = cpu.causal_conv(n, x, weight, history, rows, 1)
    differs = (found != expected).any(0)
    assert differs.nonzero().flatten().tolist() == [11]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_values_agree(value: float) -> None:
    x, weight = normal(1, 6, 20), normal(2, 20, 4)
    x[2, 7] = value
    expected = naive.causal_conv(x, weight, torch.zeros(1, 3, 20), rows_of([(0, 0, 6)]), 1)
    assert expected[:, [6, 8]].isfinite().all() and not expected[:, 7].isfinite().all()
    every_way(lambda n: [cpu.causal_conv(n, x, weight, torch.zeros(1, 3, 20), rows_of([(0, 0, 6)]), 1)], [expected])


def test_bad_segments_are_refused_before_anything_is_written() -> None:
    x, weight, history, n = normal(1, 4, 8), normal(2, 8, 2), normal(3, 3, 1, 8), native("portable", 1)
    before = history.clone()
    for segments, error in (
        ([(0, 0, 4), (9, 0, 0)], IndexError),
        ([(0, 0, 2), (0, 2, 2)], ValueError),
        ([(0, 0, 5)], ValueError),
        ([(0, 0, 2), (1, 0, 3)], ValueError),
    ):
        rows = rows_of([(0, 0, 4)])
        runs, first = [], 0
        for slot, _, length in segments:
            runs.append((slot, first, length))
            first += length
        bad = type(rows)(rows.slot, rows.position, torch.tensor(runs, dtype=torch.int32))
        with pytest.raises(error, match="segment"):
            cpu.causal_conv(n, x, weight, history, bad, 1)
    with pytest.raises(ValueError, match="causal_conv: history"):
        cpu.causal_conv(n, x, weight, history, rows_of([(0, 0, 4)]), 2)
    assert same_bits(history, before)
    with pytest.raises(ValueError, match="carry_rows: history"):
        cpu.carry_rows(n, x, normal(3, 3, 1, 9), rows_of([(0, 0, 4)]))
    with pytest.raises(ValueError, match="segment"):
        cpu.carry_rows(n, x, history, rows_of([(0, 0, 5)]))
    assert same_bits(history, before)


@pytest.mark.parametrize(("channels", "taps", "dilation"), CASES)
def test_a_held_history_stays_and_can_be_carried_on(channels: int, taps: int, dilation: int) -> None:
    """Outputs as ever; then the first rows of the held segments alone, the others left out."""
    segments, span = [(2, 0, 4), (0, 3, 1), (1, 0, 3)], (taps - 1) * dilation
    rows = held_rows(segments, [0, 2])
    x, weight, history = normal(1, 8, channels), normal(2, channels, taps), normal(3, 4, span, channels)
    after, plain = history.clone(), history.clone()
    expected = naive.causal_conv(x, weight, after, rows, dilation)
    assert same_bits(expected, naive.causal_conv(x, weight, plain, rows_of(segments), dilation))
    assert same_bits(after[0], plain[0]) and same_bits(after[1:], history[1:])

    again = Rows(rows.slot, rows.position, torch.tensor([[2, 0, 2], [1, 5, 3]], dtype=torch.int32))
    carried = after.clone()
    naive.carry_rows(x, carried, again)
    assert same_bits(carried[2], torch.cat([history[2], x[:2]])[2:]) and same_bits(carried[1], plain[1])

    def run(n: object) -> list[torch.Tensor]:
        held = history.clone()
        out = cpu.causal_conv(n, x, weight, held, rows, dilation)  # type: ignore[arg-type]
        moved = held.clone()
        cpu.carry_rows(n, x, moved, again)  # type: ignore[arg-type]
        return [out, held, moved]

    every_way(run, [expected, after, carried])  # type: ignore[arg-type]
