"""What is learned about drafts: from priors to what was seen, of one sequence and of all."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.speculate.acceptance import Acceptance


def test_before_anything_is_known_priors_and_the_drafters_word_count():
    acceptance = Acceptance((0.7, 0.4))
    assert [acceptance.expected(0, depth) for depth in (1, 2, 3, 40)] == pytest.approx([0.7, 0.4, 0.4, 0.4])
    assert acceptance.chances(0, (0.9,)) == pytest.approx((0.9,))
    assert acceptance.chances(0, (0.5, 0.5, 0.8)) == pytest.approx((0.5, 0.25, 0.2))
    assert acceptance.chances(0, (0.5, 0.5, 0.3, 1.0)) == pytest.approx((0.5, 0.25))


@settings(deadline=None)
@given(rate=st.sampled_from([0.1, 0.5, 0.9]), seed=st.integers(0, 99))
def test_shares_are_learned_whatever_the_drafter_says(rate, seed):
    acceptance, draws = Acceptance((0.6,)), random.Random(seed)
    for _ in range(400):
        acceptance.observe(2, (0.99,), int(draws.random() < rate))
    assert acceptance.expected(2, 1) == pytest.approx(rate, abs=0.25)
    assert sum(acceptance.chances(2, (0.99,))) == pytest.approx(rate, abs=0.25)
    # A new sequence begins with what all taught.
    assert acceptance.expected(7, 1) == pytest.approx(rate, abs=0.2)


def test_a_sequence_that_differs_is_known_for_itself_until_it_is_over():
    acceptance = Acceptance((0.6,))
    for _ in range(100):
        acceptance.observe(0, (0.5,), 1)
        acceptance.observe(1, (0.5,), 0)
    assert acceptance.expected(0, 1) > 0.85 and acceptance.expected(1, 1) < 0.15
    acceptance.forget(1)
    assert 0.35 < acceptance.expected(1, 1) < 0.65


def test_only_what_was_reached_is_counted():
    """Of three drafts of which one was right the second was wrong, and nothing is known of the third."""
    acceptance = Acceptance((0.5,))
    acceptance.observe(0, (0.5, 0.5, 0.5), 1)
    assert acceptance.expected(0, 1) > 0.5 > acceptance.expected(0, 2)
    assert acceptance.expected(0, 3) == pytest.approx(acceptance.expected(0, 2))
    assert acceptance.values() == {"1": 1.0, "2": 0.0}
