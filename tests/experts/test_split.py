"""The split between CPU and PCIe, on simulated machines: never slower than the better pure mode by more than 3%."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.experts.split import LEARNING_STEPS, TOLD, Line, Split, balance, bucket_of, fit_line, fixed_table, told

MOST = 16


@dataclass
class Machine:
    """What n experts over PCIe beside c on the CPU take, each side; `spread` is the noise's relative size."""

    pcie: Callable[[int], float]
    cpu: Callable[[int], float]
    beside: float = 1.0
    """Both are this much slower while they work at once."""
    spread: float = 0.0

    asking: float = 0.0
    """Of the CPU's time, what is not computing."""

    def run(self, n: int, c: int, rng) -> tuple[float, float, float]:
        """(time of the call, of it the CPU's computing, and the GPU's waiting after its own part)"""
        slower = self.beside if n and c else 1.0
        noise = np.exp(rng.normal(0, self.spread, 2)) if self.spread else (1.0, 1.0)
        pcie, cpu = self.pcie(n) * slower * noise[0], self.cpu(c) * slower * noise[1]
        return max(pcie, cpu), max(cpu - self.asking, 0.0), max(cpu - pcie, 0.0)


def line(start, each):
    return lambda n: start + each * n if n else 0.0


def stairs(threads, each):
    """CPU time that only grows when a further round of threads is needed."""
    return lambda n: 5.0 + each * math.ceil(n / threads) * threads


MACHINES = {
    "alike": Machine(line(3, 45), line(8, 50), spread=0.05),
    "fast link": Machine(line(3, 45), line(20, 400), spread=0.05),
    "slow link": Machine(line(10, 300), line(8, 60), spread=0.1),
    "they disturb each other": Machine(line(3, 45), line(8, 50), beside=1.9, spread=0.05),
    "they ruin each other": Machine(line(3, 90), line(8, 100), beside=4.0, spread=0.1),
    "large start": Machine(line(3, 45), line(200, 10), spread=0.05),
    "asking takes long": Machine(line(24, 47), line(29, 29), spread=0.05, asking=16.0),
    "stairs": Machine(line(3, 70), stairs(4, 30), spread=0.05),
    "noisy": Machine(line(3, 45), line(8, 50), beside=1.5, spread=0.25),
    "equal rates, full contention": Machine(line(0, 50), line(0, 50), beside=2.0, spread=0.02),
}


def measured(machine, rng):
    """What a start measurement finds: each side alone."""
    sizes = (1, 2, 4, 8, 16)
    return (
        fit_line([(n, machine.run(0, n, rng)[0]) for n in sizes]),
        fit_line([(n, machine.run(n, 0, rng)[0]) for n in sizes]),
    )


def play(machine_at, calls, seed, split=None):
    """Calls with random numbers of misses -> seconds of (the split, all CPU, all PCIe)."""
    rng = np.random.default_rng(seed)
    if split is None:
        split = Split(*measured(machine_at(0), rng), MOST)
    total = np.zeros(3)
    for call in range(calls):
        machine = machine_at(call)
        misses = 1 + rng.binomial(9, 0.35)
        n = split.over_pcie(misses)
        seconds, cpu_seconds, waited = machine.run(n, misses - n, rng)
        split.observe(misses, n, seconds, cpu_seconds, waited)
        total += (seconds, machine.run(0, misses, rng)[0], machine.run(misses, 0, rng)[0])
    return total, split


@pytest.mark.parametrize("name", MACHINES)
def test_never_slower_than_the_better_pure_mode_by_more_than_three_percent(name):
    for seed in range(3):
        (split, cpu, pcie), _ = play(lambda _: MACHINES[name], 2500, seed)
        assert split <= 1.03 * min(cpu, pcie), (split / cpu, split / pcie)


def test_a_split_that_believes_its_model_alone_would_fail():
    """The negative control: on this machine the model's balance costs far more than 3%."""
    machine, rng = MACHINES["they ruin each other"], np.random.default_rng(0)
    cpu, pcie = measured(machine, rng)
    mixed = sum(machine.run(balance(m, cpu, pcie), m - balance(m, cpu, pcie), rng)[0] for m in (2, 4, 6, 8))
    assert mixed > 1.5 * min(sum(machine.cpu(m) for m in (2, 4, 6, 8)), sum(machine.pcie(m) for m in (2, 4, 6, 8)))


def test_where_mixing_helps_it_is_found():
    (split, cpu, pcie), _ = play(lambda _: MACHINES["alike"], 2500, 1)
    assert split < 0.7 * min(cpu, pcie)


def test_a_wrong_start_measurement_is_corrected():
    machine = MACHINES["alike"]
    for wrong in (Split(Line(8, 500), Line(3, 45), MOST), Split(Line(8, 50), Line(3, 450), MOST)):
        (_, _, _), learned = play(lambda _: machine, 1500, 2, wrong)
        (split, cpu, pcie), _ = play(lambda _: machine, 1500, 3, learned)
        assert split < 0.75 * min(cpu, pcie)


def test_both_sides_of_a_mixture_are_learned_whichever_is_last():
    """What the CPU needs beside computing is not the bus's: a balance that took it for that left the bus idle."""
    machine = Machine(line(24, 47), line(29, 29), spread=0.02, asking=16.0)
    for cpu, pcie in ((Line(10, 25), Line(5, 46)), (Line(60, 40), Line(5, 90))):
        _, split = play(lambda _: machine, 3000, 7, Split(cpu, pcie, MOST))
        for n in (1, 2, 3):
            assert split.pcie.at(n) == pytest.approx(machine.pcie(n), rel=0.06)
            assert split.cpu.at(n + 1) == pytest.approx(machine.cpu(n + 1), rel=0.06)
        assert split.over_pcie(7) == 3


@pytest.mark.parametrize(
    ("before", "after"), [("slow link", "fast link"), ("fast link", "slow link"), ("alike", "they ruin each other")]
)
def test_a_machine_that_changes_is_followed(before, after):
    _, split = play(lambda _: MACHINES[before], 1500, 4)
    play(lambda _: MACHINES[after], 4000, 5, split)
    (seconds, cpu, pcie), _ = play(lambda _: MACHINES[after], 2500, 6, split)
    assert seconds <= 1.03 * min(cpu, pcie)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0, 60), st.floats(5, 400), st.floats(0, 60), st.floats(5, 400), st.floats(1, 2.5), st.integers(0, 1 << 20)
)
def test_three_percent_on_random_machines(start_a, each_a, start_b, each_b, beside, seed):
    machine = Machine(line(start_a, each_a), line(start_b, each_b), beside, 0.05)
    (split, cpu, pcie), _ = play(lambda _: machine, 1500, seed)
    assert split <= 1.03 * min(cpu, pcie)


def test_the_balance_is_where_the_slower_side_is_fastest():
    cpu, pcie = Line(10, 60), Line(0, 40)
    times = [max(pcie.at(n), cpu.at(10 - n)) for n in range(11)]
    assert times[balance(10, cpu, pcie)] == min(times)
    assert balance(0, cpu, pcie) == balance(1, cpu, pcie) == 0 and balance(2, cpu, pcie) == 1


@given(
    starts=st.tuples(st.floats(0.0, 1e-3), st.floats(0.0, 1e-3)),
    eaches=st.tuples(st.floats(0.0, 1e-3), st.floats(0.0, 1e-3)),
    misses=st.integers(2, 330),
)
def test_the_crossing_of_the_lines_is_what_trying_all_finds(starts, eaches, misses):
    cpu, pcie = Line(starts[0], eaches[0]), Line(starts[1], eaches[1])

    def slower(n):
        return max(pcie.at(n), cpu.at(misses - n))

    found = balance(misses, cpu, pcie)
    assert 1 <= found < misses
    assert balance(misses, Line(1e-3, 5e-324), Line(0.0, 5e-324)) == misses - 1  # lines that hardly rise
    assert slower(found) <= min(map(slower, range(1, misses))) * (1 + 1e-12)


def test_a_table_keeps_what_it_is_not_asked_to_find_anew():
    split = Split(Line(10e-6, 40e-6), Line(5e-6, 60e-6), 64)
    first = split.table()
    split.cpu = Line(10e-6, 400e-6)
    again = split.table(9)
    assert (again[9:] == first[9:]).all() and (again[:9] == split.table()[:9]).all()


def test_lines_fit_what_was_measured():
    fitted = fit_line([(1, 11.0), (2, 13.0), (4, 17.0)])
    assert fitted.start == pytest.approx(9) and fitted.each == pytest.approx(2)
    assert fit_line([(1, 10.0), (2, 9.0)]) == Line(0.0, 19 / 3)
    assert fit_line([(4, 8.0)]) == Line(0.0, 2.0)
    with pytest.raises(ValueError, match="times of one expert or more"):
        fit_line([(0, 1.0)])


def test_a_share_that_was_asked_for_is_kept():
    assert fixed_table(0.25, 4).tolist() == [0, 0, 0, 1, 1]
    assert fixed_table(1.0, 3).tolist() == [0, 1, 2, 3] and not fixed_table(0.0, 3).any()
    with pytest.raises(ValueError, match="from 0 to 1"):
        fixed_table(1.5, 3)


def test_the_table_says_what_every_number_of_misses_gets():
    split = Split(Line(10, 60), Line(0, 40), 40)
    table = split.table()
    assert table.shape == (41,) and table[0] == 0
    assert all(0 <= n <= m for m, n in enumerate(table)) and table[20] == balance(20, split.cpu, split.pcie)


def test_buckets_are_contiguous_and_grow_with_the_misses():
    found = [bucket_of(m) for m in range(1, 300)]
    assert found[:16] == list(range(16)) and all(b - a in (0, 1) for a, b in pairwise(found))


def test_the_split_hears_of_all_layers_at_first_and_later_of_each_in_turn():
    layers = list(range(3, 51))
    assert told(layers, LEARNING_STEPS, 8) == layers and told([], 1000, 8) == [] and told([5, 7], 1000, 8) == [5, 7]
    later = [told(layers, steps, 8) for steps in range(LEARNING_STEPS + 8, LEARNING_STEPS + 8 + 12 * 8, 8)]
    assert all(len(some) == TOLD for some in later) and sorted(layer for some in later for layer in some) == layers
