"""delta_rule: against the recurrence in float64, C++ against the specification, and any split against the whole."""

import itertools
from dataclasses import replace

import pytest
import torch

from kernels.layer_cases import every_way, held_rows, native, normal, rows_of, same_bits
from strata.kernels.delta_rule import cpu, naive
from strata.kernels.native import Native
from strata.kernels.ops import HeadPairing
from strata.kernels.views import Rows

EPS = 1e-6


class Case:
    """Random inputs of one call."""

    def __init__(self, seed: int, rows: int, slots: int, heads: tuple[int, int], dims: tuple[int, int]) -> None:
        self.key_heads, value_heads = heads
        key_dim, value_dim = dims
        self.qkv = normal(seed, rows, 2 * self.key_heads * key_dim + value_heads * value_dim)
        self.beta = torch.sigmoid(normal(seed + 1, rows, value_heads))
        self.decay = torch.exp(-0.2 * normal(seed + 2, rows, value_heads).abs())
        self.state = 0.3 * normal(seed + 3, slots, value_heads, key_dim, value_dim)

    def naive(self, rows: Rows, pairing: HeadPairing) -> list[torch.Tensor]:
        state = self.state.clone()
        out = naive.delta_rule(self.qkv, self.beta, self.decay, state, rows, self.key_heads, pairing, EPS)
        return [out, state]

    def cpu(self, n: Native, rows: Rows, pairing: HeadPairing) -> list[torch.Tensor]:
        state = self.state.clone()
        out = cpu.delta_rule(n, self.qkv, self.beta, self.decay, state, rows, self.key_heads, pairing, EPS)
        return [out, state]

    def part(self, n: Native, state: torch.Tensor, slot: int, a: int, b: int) -> torch.Tensor:
        """Rows a .. b as a call of their own for `slot`, on `state`."""
        rows = rows_of([(slot, 0, b - a)])
        return cpu.delta_rule(
            n, self.qkv[a:b], self.beta[a:b], self.decay[a:b], state, rows, self.key_heads, "grouped", EPS
        )


def truth(case: Case, rows: Rows, pairing: HeadPairing) -> list[torch.Tensor]:
    state = case.state.double()
    value_heads, key_dim, value_dim = state.shape[1:]
    q, k, v = case.qkv.double().split([case.key_heads * key_dim] * 2 + [value_heads * value_dim], 1)
    out = torch.empty(len(q), value_heads, value_dim, dtype=torch.float64)
    for t, h in itertools.product(range(len(q)), range(value_heads)):
        served = h % case.key_heads if pairing == "tiled" else h * case.key_heads // value_heads
        here = slice(served * key_dim, (served + 1) * key_dim)
        qt, kt = (x[t, here] / (x[t, here].square().sum() + EPS).sqrt() for x in (q, k))
        s = state[int(rows.slot[t]), h]
        s *= case.decay[t, h].double()
        d = case.beta[t, h].double() * (v[t, h * value_dim : (h + 1) * value_dim] - s.T @ kt)
        s += torch.outer(kt, d)
        out[t, h] = s.T @ (qt / key_dim**0.5)
    return [out, state]


CASES = [
    # key heads, value heads, dk, dv, segments
    ((1, 1), (24, 24), [(0, 0, 1)]),
    ((1, 1), (64, 32), [(1, 0, 3)]),
    ((2, 4), (24, 40), [(1, 0, 1), (0, 5, 5), (2, 0, 2)]),
    ((2, 6), (32, 100), [(2, 0, 3), (1, 9, 1)]),
    ((4, 8), (128, 128), [(0, 3, 1), (1, 0, 2)]),
    ((1, 2), (32, 72), [(0, 0, 33), (2, 7, 1)]),
    ((1, 2), (16, 8), [(0, 0, 70)]),
    ((1, 1), (8, 64), [(1, 0, 65), (0, 2, 2)]),
    ((1, 1), (8, 48), [(0, 0, 130)]),
]


@pytest.mark.parametrize(("heads", "dims", "segments"), CASES)
@pytest.mark.parametrize("pairing", ["grouped", "tiled"])
def test_recurrence_and_cpp(
    heads: tuple[int, int], dims: tuple[int, int], segments: list[tuple[int, int, int]], pairing: HeadPairing
) -> None:
    rows = rows_of(segments)
    case = Case(1, len(rows.slot), 4, heads, dims)
    expected = case.naive(rows, pairing)
    for found, exact in zip(expected, truth(case, rows, pairing), strict=True):
        torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5)
    assert same_bits(expected[1][3], case.state[3])
    every_way(lambda n: case.cpu(n, rows, pairing), expected)


def test_the_pairings_differ() -> None:
    rows, case = rows_of([(0, 0, 2)]), Case(1, 2, 1, (2, 4), (32, 32))
    n = native("portable", 1)
    assert not same_bits(case.cpu(n, rows, "tiled")[0], case.cpu(n, rows, "grouped")[0])


@pytest.mark.parametrize("dims", [(24, 40), (32, 128)])
@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
def test_every_split_gives_the_same_bits(dims: tuple[int, int], isa: str) -> None:
    case, n = Case(1, 6, 1, (1, 2), dims), native(isa, 2)
    out, state = case.cpu(n, rows_of([(0, 0, 6)]), "grouped")
    for cuts in range(32):
        bounds = [0] + [i + 1 for i in range(5) if cuts >> i & 1] + [6]
        split = case.state.clone()
        parts = [case.part(n, split, 0, a, b) for a, b in itertools.pairwise(bounds)]
        assert same_bits(torch.cat(parts), out) and same_bits(split, state)


def test_a_long_segment_equals_single_rows() -> None:
    case, n = Case(1, 70, 1, (1, 1), (32, 40)), native("avx2", 2)
    out, state = case.cpu(n, rows_of([(0, 0, 70)]), "grouped")
    single = case.state.clone()
    assert same_bits(torch.cat([case.part(n, single, 0, t, t + 1) for t in range(70)]), out)
    assert same_bits(single, state)


def test_slots_together_equal_each_alone_and_others_stay() -> None:
    case, n = Case(1, 9, 5, (2, 4), (32, 64)), native("avx2", 2)
    out, state = case.cpu(n, rows_of([(3, 0, 2), (0, 7, 6), (2, 1, 1)]), "grouped")
    alone = case.state.clone()
    parts = [case.part(n, alone, slot, a, b) for slot, a, b in ((3, 0, 2), (0, 2, 8), (2, 8, 9))]
    assert same_bits(torch.cat(parts), out) and same_bits(alone, state)
    assert same_bits(state[[1, 4]], case.state[[1, 4]])


def test_a_changed_state_value_changes_its_column() -> None:
    case, n = Case(1, 3, 1, (1, 2), (32, 40)), native("portable", 1)
    expected = case.cpu(n, rows_of([(0, 0, 3)]), "grouped")[0]
    case.state[0, 1, 17, 33] += 0.5
    found = case.cpu(n, rows_of([(0, 0, 3)]), "grouped")[0]
    differs = (found != expected).any(0)
    assert differs.nonzero().tolist() == [[1, 33]]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_values_stay_visible(value: float) -> None:
    case = Case(1, 4, 2, (1, 2), (24, 40))
    case.qkv[1, 2 * 24 + 5] = value  # value head 0, dim 5
    rows = rows_of([(0, 0, 3), (1, 0, 1)])
    expected = case.naive(rows, "grouped")
    assert not expected[0][1:3, 0, 5].isfinite().any() and expected[0][:, 1].isfinite().all()
    assert expected[0][3].isfinite().all()
    every_way(lambda n: case.cpu(n, rows, "grouped"), expected)


def test_bad_shapes_and_segments_are_refused() -> None:
    case, n = Case(1, 3, 2, (2, 4), (8, 8)), native("portable", 1)
    with pytest.raises(ValueError, match="do not fit"):
        cpu.delta_rule(n, case.qkv, case.beta, case.decay, case.state, rows_of([(0, 0, 3)]), 3, "grouped", EPS)
    with pytest.raises(ValueError, match="'woven'"):
        cpu.delta_rule(n, case.qkv, case.beta, case.decay, case.state, rows_of([(0, 0, 3)]), 2, "woven", EPS)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match=r"slot 2 is outside 0 \.\. 1"):
        case.cpu(n, rows_of([(2, 0, 3)]), "grouped")
    with pytest.raises(ValueError, match="does not lie between rows 0 and 3"):
        cpu.delta_rule(n, case.qkv, case.beta, case.decay, case.state, rows_of([(0, 0, 4)]), 2, "grouped", EPS)
    with pytest.raises(ValueError, match="second time"):
        case.cpu(n, rows_of([(0, 0, 1), (0, 1, 2)]), "grouped")
    held = replace(rows_of([(0, 0, 3)]), held=torch.zeros(2, dtype=torch.int32))
    with pytest.raises(ValueError, match="delta_rule: held"):
        case.cpu(n, held, "grouped")


HELD = [((2, 4), (24, 40)), ((1, 2), (32, 64)), ((1, 1), (128, 128))]


@pytest.mark.parametrize(("heads", "dims"), HELD)
def test_a_held_state_stays_and_its_rows_can_be_run_again(heads: tuple[int, int], dims: tuple[int, int]) -> None:
    """Outputs as ever; then the first rows of the held segments alone, the others left out, as if never longer."""
    segments = [(2, 0, 4), (0, 3, 1), (1, 0, 3)]
    case, rows = Case(1, 8, 4, heads, dims), held_rows(segments, [0, 2])
    expected = case.naive(rows, "grouped")
    plain = case.naive(rows_of(segments), "grouped")
    assert same_bits(expected[0], plain[0]) and same_bits(expected[1][0], plain[1][0])
    assert same_bits(expected[1][[1, 2, 3]], case.state[[1, 2, 3]])
    every_way(lambda n: case.cpu(n, rows, "grouped"), expected)

    case.state = expected[1]
    again = Rows(rows.slot, rows.position, torch.tensor([[2, 0, 2], [1, 5, 1]], dtype=torch.int32))
    after = [case.naive(again, "grouped")[1]]
    short = case.naive(rows_of([(2, 0, 2)]), "grouped")
    assert same_bits(after[0][2], short[1][2]) and not same_bits(after[0][1], case.state[1])
    every_way(lambda n: case.cpu(n, again, "grouped")[1:], after)


def test_a_long_held_segment() -> None:
    """Longer than what is normalised at once: its parts follow each other, the state stays all the same."""
    case, rows = Case(1, 133, 2, (1, 2), (24, 40)), held_rows([(1, 0, 130), (0, 0, 3)], [0, 1])
    expected = case.naive(rows, "grouped")
    assert same_bits(expected[1], case.state)
    every_way(lambda n: case.cpu(n, rows, "grouped"), expected)
