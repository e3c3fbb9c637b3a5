"""The best rows of a step, against every choice there is."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.speculate.depth import best_depths, chain

CHANCES = st.dictionaries(
    st.integers(0, 2), st.lists(st.floats(0, 1), max_size=3).map(lambda c: sorted(c, reverse=True)), max_size=3
)
COSTS = st.lists(st.floats(0.1, 1), min_size=16, max_size=16).map(lambda c: list(itertools.accumulate(c)))


@given(chances=CHANCES, costs=COSTS, others=st.integers(0, 3), spent=st.floats(0, 2))
def test_no_other_choice_gives_more_tokens_per_second(chances, costs, others, spent):
    slots = max(1, len(chances) + others)
    found = best_depths(slots, chances, costs.__getitem__, spent)
    rates = []
    for depths in itertools.product(*[range(len(each) + 1) for each in chances.values()]):
        tokens = slots + sum(sum(each[:d]) for each, d in zip(chances.values(), depths, strict=True))
        rates.append(tokens / (spent + costs[slots + sum(depths)]))
    assert found.rate == pytest.approx(max(rates))
    tokens = slots + sum(sum(chances[slot][:depth]) for slot, depth in found.drafts.items())
    assert found.tokens == pytest.approx(tokens)
    assert found.seconds == pytest.approx(spent + costs[slots + sum(found.drafts.values())])
    assert all(found.drafts.values())


def test_rows_that_cost_nothing_are_all_taken_and_dear_ones_none():
    chances = {0: [0.9, 0.5], 4: [0.3]}
    assert best_depths(2, chances, lambda rows: 1.0).drafts == {0: 2, 4: 1}
    assert best_depths(2, chances, lambda rows: float(rows)).drafts == {}


def test_what_was_spent_already_makes_drafts_worth_more():
    assert best_depths(1, {0: [0.5]}, lambda rows: 0.4 + 0.6 * rows).drafts == {}
    assert best_depths(1, {0: [0.5]}, lambda rows: 0.4 + 0.6 * rows, 1.0).drafts == {0: 1}


def test_a_chain_multiplies():
    assert chain([1.0, 0.5, 0.25]) == (1.0, 0.5, 0.125)
    assert chain([]) == ()
