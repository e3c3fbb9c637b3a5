"""The ratio of two sides from pieces: on made-up times that drift and are disturbed, with and without a difference."""

import numpy as np
import pytest

from strata.checks.pieces import Times, pieces, ratio, ratio_range


def made(seed: int, slower: float, rounds: int = 25) -> tuple[Times, Times]:
    """Twelve pieces of two sides; the clock wanders by a third, and every tenth piece is disturbed."""
    draw = np.random.default_rng(seed)
    clock = 1 + 0.3 * np.sin(np.cumsum(draw.normal(0, 0.7, (rounds, 1)), 0) + np.linspace(0, 3, 12))
    both = [clock * draw.normal(1, 0.03, (rounds, 12)) for _ in range(2)]
    for side in both:
        side *= np.where(draw.random(side.shape) < 0.1, 1 + draw.exponential(2, side.shape), 1)
        side[:, 0] *= 3  # a prompt
    return both[0], both[1] * slower


def test_five_percent_are_seen_and_none_are_not():
    """The negative control: what is planted has to be found, and nothing where nothing is."""
    seen, wrong = 0, 0
    for seed in range(12):
        low, high = ratio_range(*made(seed, 1.05))
        seen += high < 0.98 and low < 1 / 1.05 < high
        low, high = ratio_range(*made(seed, 1.0))
        wrong += not (low < 1 < high)
        assert high - low < 0.04
    assert seen >= 10 and wrong <= 2
    assert ratio(*made(1, 1.05)) == pytest.approx(1 / 1.05, abs=0.02)


def test_pieces_weigh_what_they_take():
    a = np.array([[1.0, 9.0]] * 3)
    assert ratio(a, a * [2.0, 1.0]) == pytest.approx(10 / 11)
    assert ratio_range(a, a * 2) == pytest.approx((0.5, 0.5))


def test_a_trace_is_cut_where_so_many_tokens_were_said():
    trace = [(0, 10.0), (1, 13.0), (2, 14.0), (3, 15.0), (4, 16.0), (5, 17.0), (5, 18.0)]
    assert pieces(trace, 5, 2) == [4.0, 4.0]  # the rest joins the last one, and what comes after it
    assert pieces(trace, 5, 8) == [8.0]
    leaps = [(0, 0.0), (1, 1.0), (9, 5.0), (9, 5.5)]  # nine tokens in two steps
    assert pieces(leaps, 8, 4) == pytest.approx([2.5, 3.0])
