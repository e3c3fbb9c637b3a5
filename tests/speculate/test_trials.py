"""Trials of row counts that nobody knows: found where they pay, and cheap where they do not."""

import random

import pytest

from strata.speculate.chooser import Chooser
from strata.speculate.costs import Costs, Routing
from strata.speculate.drafter import Proposal
from strata.speculate.looks import Looks
from strata.speculate.trials import START, Trials

RATES = (0.8, 0.7, 0.6, 0.6, 0.6)
SLOTS = 4


class Sure:
    """Proposes five tokens of a known confidence."""

    def begin(self, slot, tokens):
        pass

    extend = begin

    def forget(self, slot):
        pass

    rest = forget

    def propose(self, asks):
        return {slot: Proposal(tuple(range(5)), RATES) for slot in asks}


def rate(step_s, steps=600, allowed=START, rates=RATES, seed=1, plain_s=None, looks=None):
    """Tokens per second of four slots, by steps that take step_s(rows), in units of those without drafts."""
    draws, costs, plain_s = random.Random(seed), Costs(Routing(0, 0, 0)), plain_s or step_s(SLOTS)
    chooser = Chooser({"sure": Sure()}, costs)
    chooser.trials.left, chooser.looks = allowed, looks or Looks()
    for slot in range(SLOTS):
        chooser.begin(slot, [])
    tokens = seconds = 0.0
    for _ in range(steps):
        found = chooser.propose(dict.fromkeys(range(SLOTS), 16), dict.fromkeys(range(SLOTS), 1))
        for slot in range(SLOTS):
            drafts, right = found.get(slot, ()), 0
            while right < 5 and draws.random() < rates[right]:
                right += 1
            kept = min(right, len(drafts))
            chooser.checked(slot, [*range(kept), -1 if kept == right else kept])
            tokens += kept + 1
        rows = SLOTS + sum(map(len, found.values()))
        took = step_s(rows)
        chooser.stepped(SLOTS, rows, took)
        seconds += took
    return tokens / seconds / (SLOTS / plain_s)


def jumps(rows):
    """A dear fifth row, hardly anything for those after the eighth."""
    return 8.0 if rows <= 4 else 13.0 + 0.3 * (rows - 5)


def dear(rows):
    """Every row costs what the first did."""
    return 2.0 * rows


def test_many_rows_are_found_where_they_pay():
    assert rate(jumps) > 1.2


def test_without_trials_they_are_not_found():
    """Negative control: a line from one draft each says that further ones do not pay."""
    assert rate(lambda rows: jumps(rows) * (1.6 if 4 < rows <= 12 else 1), allowed=-1e9) < 1.1


def test_where_rows_are_dear_trials_cost_next_to_nothing():
    assert rate(dear) > 0.97
    assert rate(dear, rates=(0.1,) * 5) > 0.97


def test_the_allowance():
    trials = Trials()
    assert trials.take(START) and not trials.take(0.5)
    for _ in range(60):
        trials.step()
    assert trials.take(0.5) and not trials.take(0.5)
    assert trials.take(-1.0) and trials.left == pytest.approx(0.1)


def disturbed(first):
    """Costs as `quarter` has them, but the `first` steps of more than four rows take twice as long."""
    left = [first]

    def step_s(rows):
        if rows > SLOTS and left[0]:
            left[0] -= 1
            return 2 * quarter(rows)
        return quarter(rows)

    return step_s


def quarter(rows):
    """Costs with which drafts that are right as often as RATES bring some 15%."""
    return 4.0 + 0.55 * (rows - 4)


def test_what_pays_a_little_is_found_again_after_disturbed_steps():
    assert rate(quarter, steps=2000, seed=2) > 1.1
    assert rate(disturbed(6), steps=2000, seed=2) > 1.07


def test_without_an_allowance_disturbed_steps_are_believed():
    """Negative control."""
    assert rate(disturbed(6), steps=2000, allowed=-1e9, seed=2) < 1.03


class Never(Looks):
    """Drafts that seem to pay are never done without."""

    def due(self, slots):
        return False


def slow_without(first):
    """Drafts lose, but the `first` steps without any take nearly twice as long as such steps do."""
    left = [first]

    def step_s(rows):
        if rows == SLOTS and left[0]:
            left[0] -= 1
            return 7.2
        return 4.0 + 1.2 * (rows - 4)

    return step_s


def test_disturbed_steps_without_drafts_are_not_believed_for_long():
    assert rate(slow_without(3), steps=1500, plain_s=4.0) > 0.96


def test_without_looks_they_are():
    """Negative control."""
    assert rate(slow_without(3), steps=1500, plain_s=4.0, looks=Never()) < 0.93
