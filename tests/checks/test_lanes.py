"""Two engines in turns: who runs when, that waiting costs no time, and a slower side is told from a slow clock."""

import math
import threading

import numpy as np
import pytest

from fakes import FakeRunner
from strata.checks.crowd import Crowd, Part
from strata.checks.engines import running
from strata.checks.lanes import Lane, Lanes
from strata.checks.pieces import pieces, ratio, ratio_range
from strata.engine.request import Request

TOKENS, TURN = 48, 4


class Clock:
    """Moved by who works."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Timed(FakeRunner):
    """A step takes `cost` of a processor whose clock wanders by a third; `order` has who ran."""

    def __init__(self, clock, name, cost, order):
        super().__init__()
        self.time, self.name, self.cost, self.order = clock, name, cost, order

    def step(self, windows):
        self.order.append(self.name)
        self.time.now += self.cost * (1 + 0.3 * math.sin(self.time.now / 70))
        return super().step(windows)


def rounds(slower, count=9, requests=1):
    """Rounds of both sides -> (pieces of A, of B, seconds of whole rounds of A, of B, who ran in the first round)."""
    clock, order = Clock(), []
    lanes = Lanes(TURN, clock)
    sides = [Lane(Timed(clock, "AB"[i], (1.0, slower)[i], order), lanes, i) for i in range(2)]
    cut, whole, first = ([], []), ([], []), ""
    with running(sides[0], clock=sides[0].clock) as a, running(sides[1], clock=sides[1].clock) as b:
        try:
            for turn in range(count):
                began = [side.clock() for side in sides]
                crowds = []
                for engine, side in zip((a, b), sides, strict=True):
                    asked = [Request(f"{turn}.{i}", (turn, i, 3, 4), TOKENS) for i in range(requests)]
                    crowds.append(Crowd(engine, [Part(request) for request in asked], side.tell))
                    crowds[-1].begin()
                lanes.begin(turn % 2)
                for i, crowd in enumerate(crowds):
                    crowd.wait(60)
                    whole[i].append(sides[i].clock() - began[i])
                    cut[i].append(pieces(sides[i].trace(), TOKENS * requests, TURN))
                first = first or "".join(order)
        finally:
            lanes.close()
    return np.array(cut[0]), np.array(cut[1]), whole[0], whole[1], first


def test_sides_take_turns_and_the_first_one_is_half_as_long():
    order = rounds(1.0, 1)[-1]
    assert order.startswith("AAAA" + "B" * 8 + "A" * 8 + "B" * 8) and order.endswith("AAAA")
    assert order.count("A") == order.count("B") == TOKENS


def test_a_slower_side_is_seen_whatever_the_clock_does():
    a, b, whole_a, whole_b, _ = rounds(1.05)
    low, high = ratio_range(a, b)
    assert ratio(a, b) == pytest.approx(1 / 1.05, abs=0.01) and 0.93 < low <= high < 0.97
    assert sum(whole_a) / sum(whole_b) == pytest.approx(1 / 1.05, abs=0.01)
    # The control: the same side twice.
    low, high = ratio_range(*rounds(1.0)[:2])
    assert 0.985 < low <= high < 1.015


def test_waiting_takes_no_time_of_a_side():
    clock, order = Clock(), []
    lanes = Lanes(TURN, clock)
    _, _, a, b, _ = rounds(1.0, 2, requests=3)
    assert sum(a) == pytest.approx(sum(b), rel=0.1)
    lane = Lane(Timed(clock, "A", 1.0, order), lanes, 0)
    clock.now += 100
    assert lane.clock() == 0.0 and lane.limits.slots == 4


def test_nobody_is_left_waiting_when_a_round_is_broken_off():
    lanes = Lanes(TURN, Clock())
    waiter = threading.Thread(target=lanes.enter, args=(0,))
    waiter.start()
    lanes.close()
    waiter.join(10)
    assert not waiter.is_alive()
