"""The rule that tells a difference from noise, on made-up figures and against every order of small cases."""

import itertools
import math
import random

import pytest

from strata.checks.versus import CHANCE, LEAST_ROUNDS, Versus, median_range, rank_chance, ways_to_win


def test_the_same_side_twice_ties():
    draw = random.Random(5)
    called = 0
    for _ in range(2000):
        runs = [tuple(draw.gauss(100, 5) for _ in range(7)) for _ in range(2)]
        called += Versus(*runs).differs
    assert called / 2000 <= CHANCE
    same = (101.0, 99.0, 100.0, 103.0, 98.0)
    assert not Versus(same, same).differs and Versus(same, same).words().endswith("no difference beyond noise")


def test_a_steady_difference_is_called_different():
    a = (100.0, 101.0, 99.0, 100.5, 100.2)
    b = tuple(rate * 1.05 for rate in a)
    found = Versus(a, b)
    assert found.differs and found.ratio == pytest.approx(1.05) and found.spread == pytest.approx((1.05, 1.05))
    assert "B is faster (by chance in 0.8% of such runs)" in found.words()
    assert Versus(b, a).differs and "A is faster" in Versus(b, a).words()


def test_one_disturbed_run_neither_makes_a_difference_nor_hides_one():
    a = (100.0, 101.0, 99.0, 100.5, 100.2, 99.9, 100.1, 99.7, 100.6)
    b = (100.1, 100.9, 99.2, 100.4, 100.3, 99.8, 99.6, 100.7, 55.0)
    assert not Versus(a, b).differs
    faster = (*(rate * 1.1 for rate in a[:8]), 55.0)
    assert Versus(a, faster).differs


def test_less_than_1_percent_is_not_worth_a_word():
    a = (100.0, 100.01, 100.02, 100.03, 100.04)
    found = Versus(a, tuple(rate * 1.005 for rate in a))
    assert found.chance < CHANCE and not found.differs


def test_with_fewer_rounds_nothing_could_be_called_different():
    def rarest(rounds):
        return 2 / math.comb(2 * rounds, rounds)

    assert rarest(LEAST_ROUNDS) < CHANCE < rarest(LEAST_ROUNDS - 1)
    a = tuple(float(i) for i in range(LEAST_ROUNDS))
    assert rank_chance(a, [10 + x for x in a]) == pytest.approx(rarest(LEAST_ROUNDS))


@pytest.mark.parametrize("rounds", [7, 20, 41])
def test_the_median_lies_in_its_range_19_times_of_20(rounds):
    draw = random.Random(rounds)
    inside = 0
    for _ in range(1000):
        low, high = median_range([draw.expovariate(1.0) for _ in range(rounds)])
        inside += low <= math.log(2) <= high
    assert 940 <= inside <= 995


def test_few_values_give_their_whole_range():
    assert median_range([3.0, 1.0, 2.0]) == (1.0, 3.0) and median_range([1.0]) == (1.0, 1.0)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (4, 4)])
def test_the_chance_is_that_of_all_orders(n, m):
    wins = []
    for first in itertools.combinations(range(n + m), n):
        second = [x for x in range(n + m) if x not in first]
        wins.append(sum(y > x for x in first for y in second))
    assert ways_to_win(n, m) == [wins.count(w) for w in range(n * m + 1)]
    for first in itertools.combinations(range(n + m), n):
        second = [x for x in range(n + m) if x not in first]
        here = sum(y > x for x in first for y in second)
        fewer = min(here, n * m - here)
        expected = min(1.0, 2 * sum(w <= fewer for w in wins) / len(wins))
        assert rank_chance(first, second) == pytest.approx(expected)


def test_ties_count_half():
    assert rank_chance((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)) == 1.0


def test_values_carry_both_sides():
    values = Versus((1.0, 2.0, 3.0, 4.0, 5.0), (2.0, 4.0, 6.0, 8.0, 10.0)).values()
    assert values["a"]["median"] == 3 and values["b"]["runs"] == [2, 4, 6, 8, 10]
    assert values["ratio"] == {"median": 2, "min": 2, "max": 2} and values["differs"] is False
