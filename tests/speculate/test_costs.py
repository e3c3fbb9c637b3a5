"""What is learned about time."""

import random

import pytest

from strata.speculate.costs import SURPRISE, Costs, Routing

FREE = Routing(0, 0, 0)


def taught(cost, rows, steps=200, noise=0.0, seed=1):
    costs, draws = Costs(FREE), random.Random(seed)
    for _ in range(steps):
        r = draws.choice(rows)
        costs.observe_step(r, cost(r) * (1 + noise * (draws.random() - 0.5)))
    return costs


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_measured_row_counts_are_known_and_others_lie_on_a_line(noise):
    costs = taught(lambda rows: 0.01 + 0.003 * rows, [1, 2, 4], noise=noise)
    for rows in (1, 2, 3, 4, 6):
        assert costs.step_s(rows) == pytest.approx(0.01 + 0.003 * rows, rel=0.12)


def test_a_jump_between_row_counts_is_learned():
    costs = taught(lambda rows: 1.0 if rows == 1 else 1.6 + 0.05 * rows, [1, 2, 3])
    assert costs.step_s(2) / costs.step_s(1) == pytest.approx(1.7, rel=0.05)
    assert costs.step_s(3) / costs.step_s(1) == pytest.approx(1.75, rel=0.05)


def test_all_row_counts_follow_when_steps_grow_longer():
    costs = taught(lambda rows: 1.0 + 0.2 * rows, [1, 2])
    before = costs.step_s(2)
    for _ in range(30):
        costs.observe_step(1, 2 * 1.2)
    assert costs.step_s(1) == pytest.approx(2 * 1.2, rel=0.05)
    assert costs.step_s(2) > 1.5 * before


def test_before_anything_ran_rows_have_a_price_all_the_same():
    costs = Costs(FREE)
    assert costs.step_s(1) < costs.step_s(2) < costs.step_s(5)
    assert costs.draft_s(0) == costs.draft_s(3) == 0


def test_one_disturbed_step_does_not_rule():
    costs = taught(lambda rows: 1.0, [1, 2])
    costs.observe_step(2, 1000.0)
    assert costs.step_s(2) < SURPRISE
    costs.observe_step(2, 0.0)
    assert costs.step_s(2) < SURPRISE


def test_an_unlucky_first_measurement_is_forgotten():
    costs = taught(lambda rows: 1.0 + 0.1 * rows, [1, 2])
    costs.observe_step(3, 3.0)
    unlucky = costs.step_s(3)
    for _ in range(600):
        costs.observe_step(1, 1.1)
    assert costs.step_s(3) < 0.8 * unlucky


def test_distinct_experts_are_paid_where_they_have_a_price():
    routing = Routing(layers=10, experts=64, top_k=4, price_s=0.001)
    assert routing.distinct(1) == pytest.approx(40)
    assert routing.distinct(2) == pytest.approx(10 * (64 - 64 * (60 / 64) ** 2))
    fixed = dict.fromkeys(range(1, 9), 1.0)
    costs = Costs(routing, fixed)
    assert costs.step_s(2) == pytest.approx(1 + 0.001 * routing.distinct(2))
    costs.observe_step(2, 50.0)
    assert costs.step_s(1) == pytest.approx(1.04)


def test_drafts_have_a_first_price_and_further_ones():
    costs = Costs(FREE)
    for _ in range(40):
        costs.observe_drafts(0.004, 0.002, 2)
    assert costs.draft_s(1) == pytest.approx(0.004)
    assert costs.draft_s(3) == pytest.approx(0.006)
    costs.observe_drafts(1.0, 0.0, 0)
    assert costs.draft_s(1) < 0.01
