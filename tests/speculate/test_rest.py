"""When a drafter stops reading along, and when it is tried again."""

import pytest

from strata.speculate.rest import EVERY, LOAN, MOST, START, Rest


def test_it_may_lose_what_it_was_given_and_then_rests():
    rest = Rest()
    stops = [rest.add(-0.5) for _ in range(int(START / 0.5) + 1)]
    assert stops == [False] * int(START / 0.5) + [True] and rest.rests and rest.balance == 0


def test_what_it_brings_keeps_it_awake_but_not_for_ever():
    rest = Rest()
    for _ in range(1000):
        assert not rest.add(0.3)
    assert rest.balance == MOST
    assert sum(not rest.add(-0.5) for _ in range(100)) == int(MOST / 0.5)


def test_one_of_so_many_sequences_is_read_on_a_loan_while_it_rests():
    rest = Rest()
    rest.add(-START - 1)
    assert [rest.reads_next() for _ in range(2 * EVERY)] == [False] * (EVERY - 1) + [True] + [False] * (EVERY - 1) + [
        True
    ]
    assert rest.balance == LOAN and rest.rests
    assert not rest.add(-LOAN) and rest.add(-0.1)
    assert not rest.reads_next()


def test_it_wakes_when_a_trial_has_brought_as_much_as_it_once_was_given():
    rest = Rest(rests=True, sequences=EVERY - 1)
    assert rest.reads_next() and not rest.add(START - 0.1) and rest.rests
    assert not rest.add(0.2) and not rest.rests and rest.reads_next()
    assert rest.balance == pytest.approx(LOAN + START + 0.1)
