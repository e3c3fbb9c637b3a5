"""The choice of a token: C++ against the specification, token by token."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.layer_cases import WAYS, native, normal
from strata.kernels.choose import cpu, naive
from strata.kernels.native import Native

WISHES = [
    (1.0, 0, 1.0, 0.0),
    (0.7, 40, 0.95, 0.0),
    (0.7, 40, 0.95, 0.05),
    (0.7, 3000, 1.0, 0.0),
    (1.3, 0, 0.9, 0.0),
    (1.0, 0, 1.0, 0.02),
    (0.2, 5, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1.0, 0, 0.0, 0.0),
    (1.0, 0, 1.0, 1.0),
    (100.0, 0, 0.999, 0.0),
    (1e-30, 0, 1.0, 0.0),
]
MARKS = [0.0, 0.11, 0.5, 0.93, 1 - 2.0**-53]


def ways() -> list[Native]:
    found = []
    for isa, threads in WAYS:
        try:
            found.append(native(isa, threads))
        except pytest.skip.Exception:
            continue
    return found


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize(("size", "scale"), [(1, 1.0), (7, 2.0), (5000, 3.0), (40_000, 0.5)])
def test_cpp_chooses_the_same_token(size: int, scale: float, wish: tuple[float, int, float, float]) -> None:
    logits = scale * normal(size, size)
    for mark in MARKS:
        expected = naive.choose(logits, *wish, mark)
        assert {cpu.choose(n, logits, *wish, mark) for n in ways()} == {expected}


HALVES = st.lists(st.sampled_from([-2.0, -0.5, -0.0, 0.0, 0.5, 3.0, -np.inf]), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(HALVES, st.sampled_from(WISHES), st.floats(0, 1, exclude_max=True))
def test_ties_and_masked_values_agree(values: list[float], wish: tuple[float, int, float, float], mark: float) -> None:
    logits = torch.tensor([*values, 0.25])
    assert cpu.choose(native("portable", 1), logits, *wish, mark) == naive.choose(logits, *wish, mark)


def test_the_mark_moves_through_the_tokens_in_order() -> None:
    logits = normal(1, 50)
    ids, weights = naive.kept(logits, 1.0, 0, 1.0, 0.0)
    edges = np.cumsum(weights) / weights.sum()
    for place in (0, 10, 48):
        assert naive.choose(logits, 1.0, 0, 1.0, 0.0, edges[place] - 1e-9) == ids[place]
        assert naive.choose(logits, 1.0, 0, 1.0, 0.0, edges[place] + 1e-9) == ids[place + 1]


def test_weights_are_the_exponentials() -> None:
    logits = normal(3, 999) * 4
    _, weights = naive.kept(logits, 0.8, 0, 1.0, 0.0)
    exact = torch.exp((logits.double() - logits.max().double()) / 0.8).numpy()
    np.testing.assert_allclose(weights / 2.0**44, exact, rtol=1e-5, atol=2.0**-43)
    assert weights.max() == 1 << 44


def test_another_rule_chooses_other_tokens() -> None:
    """Negative control: each part of a wish shows."""
    logits = normal(5, 5000)
    plain = [naive.choose(logits, 1.0, 0, 1.0, 0.0, m / 64) for m in range(64)]
    for wish in [(0.9, 0, 1.0, 0.0), (1.0, 1000, 1.0, 0.0), (1.0, 0, 0.9, 0.0), (1.0, 0, 1.0, 0.05)]:
        assert [naive.choose(logits, *wish, m / 64) for m in range(64)] != plain


def test_no_choice_is_refused() -> None:
    n = native("portable", 1)
    for logits in ([float("nan"), 1.0], [float("inf"), 1.0], [-float("inf")] * 3):
        for choose in (naive.choose, lambda *a: cpu.choose(n, *a)):
            with pytest.raises(ValueError, match="choose"):
                choose(torch.tensor(logits), 1.0, 0, 1.0, 0.0, 0.5)
    for choose in (naive.choose, lambda *a: cpu.choose(n, *a)):
        with pytest.raises(ValueError, match="choose"):
            choose(normal(1, 5), 1e-60, 0, 1.0, 0.0, 0.5)
        with pytest.raises(ValueError, match="choose"):
            choose(torch.empty(0), 1.0, 0, 1.0, 0.0, 0.5)
