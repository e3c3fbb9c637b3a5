"""Which drafts are checked: what pays, by what was learned."""

import random

import pytest

from strata.speculate.chooser import NAP, QUIET, Chooser
from strata.speculate.costly import MOST, PATIENCE
from strata.speculate.costs import Costs, Routing
from strata.speculate.drafter import Proposal, Spent
from strata.speculate.lookup import LookupDrafter
from strata.speculate.rest import START, Rest

STEPS = {rows: 1.0 + 0.25 * (rows - 1) for rows in range(1, 200)}


QUICK = Spent(0.1, 0.0, 0)


class Told:
    """Proposes the tokens it was told of, as many as wished and worth going on for."""

    def __init__(self, sure=0.9, spent=QUICK):
        self.sure, self.spent_, self.seconds = sure, spent, 0.0
        self.asked = []
        self.told = {}

    def begin(self, slot, tokens):
        self.told[slot] = list(tokens)

    def extend(self, slot, tokens):
        if slot in self.told:
            self.told[slot] += tokens

    def rest(self, slot):
        self.told.pop(slot, None)

    def knows(self, slot):
        return slot in self.told

    def forget(self, slot):
        self.told.pop(slot, None)

    def propose(self, asks):
        self.asked.append(dict(asks))
        self.seconds += self.spent_.first_s + self.spent_.more_s
        found = {}
        for slot, ask in asks.items():
            sure = [self.sure]
            while len(sure) < ask.depth and ask.goes_on(sure):
                sure.append(self.sure)
            found[slot] = Proposal(tuple(range(len(sure))), tuple(sure))
        return found

    def spent(self):
        return self.spent_

    def took(self):
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def chooser_of(told, steps=None, price_s=0.0, fixed=None, lookup=False):
    drafters = {"lookup": LookupDrafter(), "head": told} if lookup else {"head": told}
    costs = Costs(Routing(10, 64, 8, price_s), steps or STEPS)
    return Chooser(drafters, costs, "head", fixed)


def run(chooser, rate, steps=200, cap=16, seed=0):
    """Steps of slot 0 in which each draft is right with a chance of `rate` -> drafts checked in the last half."""
    draws, counts = random.Random(seed), []
    chooser.begin(0, [])
    for _ in range(steps):
        found = chooser.propose({0: cap}, {0: 5}).get(0, ())
        counts.append(len(found))
        right = 0
        while right <= len(found) and draws.random() < rate:
            right += 1
        chooser.checked(0, [*range(right), -1][: len(found) + 1])
    return counts[steps // 2 :]


def test_likely_drafts_go_deep_and_unlikely_ones_are_not_made():
    assert sum(run(chooser_of(Told()), 0.95)) / 100 > 3
    assert sum(run(chooser_of(Told()), 0.05)) / 100 < 0.1


def test_dear_misses_make_drafts_shallower_and_then_none():
    depths = [sum(run(chooser_of(Told(), price_s=price), 0.8)) / 100 for price in (0.0, 0.004, 5.0)]
    assert depths[0] > depths[1] + 0.3 and depths[1] > depths[2] + 0.3
    assert depths[2] < 0.1


def test_dear_drafts_are_not_made():
    assert sum(run(chooser_of(Told(spent=Spent(3.0, 0.0, 0))), 0.9)) / 100 < 0.2
    told = Told(spent=Spent(0.05, 0.0, 0))
    assert sum(run(chooser_of(told), 0.9)) / 100 > 2


def test_what_does_not_pay_is_tried_now_and_then_and_comes_back():
    told = Told()
    chooser = chooser_of(told)
    run(chooser, 0.0)
    before, chooser.costly.rest = len(told.asked), Rest(balance=1e9)
    run(chooser, 0.0, 200)
    assert 2 <= len(told.asked) - before <= 200 // PATIENCE
    chooser.costly.rest = Rest()
    assert sum(run(chooser, 0.95, 400)) / 200 > 1


def test_a_drafter_that_only_costs_stops_reading_within_a_sequence():
    """What it takes to read along counts too; the loss is what it was given at first, and a step at most."""
    told = Told(spent=Spent(0.5, 0.0, 0))
    chooser = chooser_of(told)
    run(chooser, 0.0, 400)
    assert chooser.costly.rest.rests and not told.told
    asked = len(told.asked)
    assert 0.5 * asked <= START + 1
    run(chooser, 0.0, 400)
    assert len(told.asked) == asked
    told = Told(spent=Spent(0.01, 0.0, 0))
    chooser = chooser_of(told)
    run(chooser, 0.9, 400)
    assert not chooser.costly.rest.rests and chooser.costly.rest.balance > START


def test_a_drafter_that_rests_is_neither_told_nor_asked():
    told = Told()
    chooser = chooser_of(told)
    chooser.costly.rest.rests = True
    assert set(run(chooser, 0.9)) == {0}
    assert not told.told and not told.asked
    fixed = chooser_of(told, fixed=2)
    fixed.costly.rest.rests = True
    assert set(run(fixed, 0.9)) == {2}


def test_a_fixed_depth_is_kept_whatever_it_costs():
    chooser = chooser_of(Told(), price_s=10.0, fixed=3)
    assert set(run(chooser, 0.1, 20)) == {3}
    assert set(run(chooser, 0.1, 20, cap=2)) == {2}


def test_caps_hold():
    chooser = chooser_of(Told(), steps=dict.fromkeys(range(1, 200), 1.0))
    for cap in (1, 2, MOST, 16):
        assert set(run(chooser, 1.0, 40, cap)) - {0} == {min(cap, MOST)}  # none in a step that is to be compared with


def test_several_slots_share_the_rows_by_what_they_bring():
    chooser = chooser_of(Told())
    draws = random.Random(3)
    for slot in (0, 1):
        chooser.begin(slot, [])
    found = {}
    for _ in range(200):
        found = chooser.propose({0: 8, 1: 8}, {0: 1, 1: 1})
        for slot, rate in ((0, 0.95), (1, 0.3)):
            right = 0
            while right < len(found.get(slot, ())) and draws.random() < rate:
                right += 1
            chooser.checked(slot, [*found.get(slot, ())[:right], -1])
    assert len(found.get(0, ())) > len(found.get(1, ()))


def test_a_long_agreement_wins_over_a_doubtful_head():
    chooser = chooser_of(Told(sure=0.3), lookup=True)
    chooser.begin(0, [])
    text = [*range(40, 80), *range(40, 60)]
    chooser.extend(0, text)
    for token in range(60, 64):
        found = chooser.propose({0: 16}, {0: token})[0]
        assert found == tuple(range(token + 1, token + 1 + len(found))) and found
        chooser.checked(0, [token + 1])
        chooser.extend(0, [token])
    assert chooser.values()["drafters"]["lookup"]["offered"]["1"] == 4


def test_everything_told_reaches_every_drafter():
    told = Told()
    chooser = chooser_of(told, lookup=True)
    chooser.begin(2, [1, 2])
    chooser.extend(2, [3])
    assert told.told == {2: [1, 2, 3]}
    chooser.forget(2)
    assert told.told == {}
    chooser.checked(2, [4])


def test_the_counts_are_of_what_was_checked():
    chooser = chooser_of(Told(), fixed=2)
    chooser.begin(0, [])
    for drawn in ([0, 1, 9], [0, 9], [9], [0, 1, 9]):
        assert chooser.propose({0: 4}, {0: 3}) == {0: (0, 1)}
        chooser.checked(0, drawn)
    counts = chooser.values()["drafters"]["head"]
    assert counts["offered"] == {"1": 4, "2": 4}
    assert counts["accepted"] == {"1": 3, "2": 2}
    assert counts["right"] == {"1": pytest.approx(0.75, abs=0.01), "2": pytest.approx(0.667, abs=0.01)}


def test_where_nothing_is_found_for_long_only_every_few_steps_are_thought_of():
    """Until a draft is checked, a sequence begins, or a costly drafter reads along."""
    chooser = Chooser({"lookup": LookupDrafter()}, Costs(Routing(10, 64, 8), STEPS))

    def thought_of(tokens):
        found = []
        for token in tokens:
            found.append(not chooser.naps())
            if found[-1]:
                chooser.propose({0: 16}, {0: token})
            chooser.extend(0, [token])
        return found

    chooser.begin(0, [])
    assert thought_of(range(QUIET + 1)) == [True] * (QUIET + 1)
    assert thought_of(range(100, 100 + 2 * (NAP + 1))) == [*[False] * NAP, True] * 2
    # What was said is said again: the first step that is thought of finds it, and from then on all are.
    assert thought_of(range(4, 14)) == [*[False] * NAP, *[True] * (10 - NAP)]
    thought_of(range(200, 200 + 2 * QUIET))
    chooser.begin(0, [])
    assert thought_of(range(4)) == [True] * 4

    reading = chooser_of(Told(), lookup=True)
    run(reading, 0.9, 2 * QUIET)
    assert not any(reading.naps() for _ in range(4))
