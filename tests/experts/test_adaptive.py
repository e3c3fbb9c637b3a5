"""The adaptive tier: it finds the hot experts, keeps them, and does not thrash."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.experts.adaptive import AdaptSettings, Swap, Usage, choose_swaps, hottest
from strata.experts.frames import ALIGNMENT, Frames

LAYERS, EXPERTS = 3, 8
SIZES = np.array([ALIGNMENT, 0, 2 * ALIGNMENT])
QUICK = AdaptSettings(swaps=4, min_gain=0.5)


def frames_of(*owners, blocks=1, block=4 * ALIGNMENT):
    frames = Frames(block)
    for _ in range(blocks):
        frames.add_block()
    for owner in owners:
        assert frames.take(owner, int(SIZES[owner[0]])) is not None
    return frames


def counts_of(**values):
    """counts_of(l0e3=5.0)"""
    counts = np.zeros((LAYERS, EXPERTS))
    for name, value in values.items():
        layer, expert = name[1:].split("e")
        counts[int(layer), int(expert)] = value
    return counts


def apply(frames, swaps):
    for swap in swaps:
        if swap.leaver is not None:
            frames.give(swap.leaver)
        assert frames.take(swap.newcomer, int(SIZES[swap.newcomer[0]])) is not None


def swaps_of(counts, frames, settings=QUICK, busy=()):
    framed = np.zeros(counts.shape, bool)
    for owner in frames.held:
        framed[owner] = True
    found = choose_swaps(counts, frames, framed, SIZES, settings, busy)
    for owner in busy:  # marks of those under way are free
        framed[owner] = not framed[owner]
        assert choose_swaps(counts, frames, framed, SIZES, settings, busy) == found
    return found


def test_free_space_is_filled_by_what_was_used_and_by_nothing_else():
    frames = frames_of()
    assert swaps_of(counts_of(l0e1=0.5, l0e2=3), frames) == [
        Swap((0, 2), None),
        Swap((0, 1), None),
    ]


def test_a_miss_replaces_the_least_used_resident_when_the_gain_is_clear():
    frames = frames_of((0, 0), (0, 1), (0, 2), (0, 3))
    counts = counts_of(l0e0=5, l0e1=2, l0e2=9, l0e3=4, l0e7=4.6)
    assert swaps_of(counts, frames) == [Swap((0, 7), (0, 1))]
    counts[0, 7] = 4.4  # hysteresis: less than (1 + 0.5) * (2 + 1)
    assert swaps_of(counts, frames) == []


def test_the_budget_moves_between_layers():
    frames = frames_of((2, 0), (2, 1))
    counts = counts_of(l2e0=1, l2e1=2, l0e4=50, l0e5=40)
    swaps = swaps_of(counts, frames)
    assert swaps == [Swap((0, 4), (2, 0)), Swap((0, 5), (2, 1))]
    apply(frames, swaps)
    assert sorted(frames.held) == [(0, 4), (0, 5)]


def test_a_larger_expert_takes_only_a_place_that_holds_it():
    frames = frames_of((0, 0), (0, 1), (2, 3))
    counts = counts_of(l0e0=1, l0e1=2, l2e3=3, l2e6=90)
    assert swaps_of(counts, frames) == [Swap((2, 6), (2, 3))]


def test_experts_on_their_way_neither_come_nor_go():
    frames = frames_of((0, 0), (0, 1), (0, 2), (0, 3))
    counts = counts_of(l0e0=0, l0e1=1, l0e2=9, l0e3=9, l0e6=50, l0e7=40)
    assert swaps_of(counts, frames, QUICK, {(0, 6), (0, 0)}) == [Swap((0, 7), (0, 1))]


def test_a_round_is_bounded():
    frames = frames_of(blocks=4)
    counts = np.ones((LAYERS, EXPERTS))
    assert len(swaps_of(counts, frames)) == 4
    assert swaps_of(counts, frames, AdaptSettings(swaps=0)) == []


def test_old_uses_fade():
    usage = Usage(counts_of(l0e0=8), 0.5)
    usage.add(counts_of(l0e1=3).astype(np.int32))
    assert usage.counts[0, 0] == 4 and usage.counts[0, 1] == 3


def test_the_hottest_come_first_and_layers_without_experts_not_at_all():
    order = list(hottest(counts_of(l2e5=3, l1e0=9, l0e0=3), SIZES))
    assert order[:4] == [(0, 0), (2, 5), (2, 0), (0, 1)] and len(order) == len(set(order)) == 2 * EXPERTS


def test_settings_out_of_range_are_named():
    for wrong in ({"every": -1}, {"swaps": -1}, {"decay": 1.1}, {"min_gain": -0.1}):
        with pytest.raises(ValueError):
            AdaptSettings(**wrong)


def simulate(popularity, rounds, start=(), rng=None):
    """Rounds of 200 uses -> (frames, swaps per round, share of hits per round)."""
    rng = rng or np.random.default_rng(0)
    frames, usage = frames_of(*start, blocks=2), Usage(np.zeros((LAYERS, EXPERTS)), 0.9)
    swaps, hits = [], []
    for _ in range(rounds):
        uses = rng.multinomial(200, popularity.reshape(-1)).reshape(popularity.shape)
        hits.append(sum(uses[o] for o in frames.held) / 200)
        usage.add(uses)
        chosen = swaps_of(usage.counts, frames)
        swaps.append(len(chosen))
        apply(frames, chosen)
    return frames, swaps, hits


def test_a_skewed_load_is_learned_and_then_left_alone():
    popularity = np.zeros((LAYERS, EXPERTS))
    popularity[0] = 2.0 ** -np.arange(EXPERTS)
    popularity[2] = popularity[0, ::-1] / 2
    popularity /= popularity.sum()
    _, swaps, hits = simulate(popularity, 40, start=[(2, 0), (2, 1), (2, 2), (2, 3)])
    assert hits[0] < 0.1 and np.mean(hits[20:]) > 0.85
    assert sum(swaps[20:]) <= 2


def test_a_load_without_favourites_does_not_thrash():
    popularity = np.zeros((LAYERS, EXPERTS))
    popularity[[0, 2]] = 1 / (2 * EXPERTS)
    _, swaps, _ = simulate(popularity, 60)
    assert sum(swaps[20:]) <= 4


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 8), st.floats(0, 2))
def test_proposals_hold_their_promises(seed, most, gain):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 12, (LAYERS, EXPERTS)).astype(float)
    frames = frames_of(blocks=3)
    for owner in [(int(layer), int(e)) for layer in (0, 2) for e in rng.permutation(EXPERTS)[:4]]:
        frames.take(owner, int(SIZES[owner[0]]))
    before = dict(frames.held)
    found = swaps_of(counts, frames, AdaptSettings(swaps=most, min_gain=gain))
    assert frames.held == before and len(found) <= most
    leavers = [s.leaver for s in found if s.leaver is not None]
    assert len(set(leavers)) == len(leavers) and all(owner in before for owner in leavers)
    newcomers = [s.newcomer for s in found]
    assert len(set(newcomers)) == len(newcomers) and not any(owner in before for owner in newcomers)
    for swap in found:
        assert SIZES[swap.newcomer[0]] > 0
        if swap.leaver is not None:
            assert counts[swap.newcomer] > (1 + gain) * (counts[swap.leaver] + 1) - 1e-9
