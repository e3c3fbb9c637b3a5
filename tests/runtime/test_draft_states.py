"""What drafts leave behind: states, and what is kept of them, are those of tokens that came one by one."""

import pytest
import torch

from models.heads import HEADED
from models.made import oracle, same_bits
from runtime.drafting import Knowing, differing, driven, forced, memory, plain_of, read, runner_of
from strata.core.window import Window
from strata.runtime.drafts import Drafting
from strata.runtime.keeping import Keeping
from strata.sampling.params import SamplingParams
from strata.speculate.drafter import Ask
from strata.state.sequence import PAGE
from strata.state.stops import Spacing


@pytest.mark.parametrize("name", HEADED)
def test_a_state_restored_after_a_draft_goes_on_alike(name):
    """A snapshot taken behind a window that was cut short, restored in another slot and after others used the pages."""
    ids = (oracle(name).ids * 3)[:100]
    runner = runner_of(name, Drafting(depth=4, drafters={"told": Knowing([ids])}))
    length = driven(runner, ids)
    taken, there = runner.states.snapshot(1), memory(runner, 1)
    window = Window(1, length, (ids[length], *[5] * 3), 4)
    forced(runner, window, 0)
    runner.states.restore(1, taken)
    runner.states.restore(2, taken)
    assert differing(there, memory(runner, 1)) == differing(there, memory(runner, 2)) == []
    logits = []
    for slot in (1, 2):
        logits.append(runner.forward([Window(slot, length, tuple(ids[length : length + 4]), 4)]))
        runner.states.commit(slot, 2, runner.ops)
    assert same_bits(*logits)
    assert differing(memory(runner, 1), memory(runner, 2)) == []
    # Negative control: one that goes on without the cut's last row differs.
    runner.states.restore(1, taken)
    runner.forward([Window(1, length, tuple(ids[length : length + 4]), 4)])
    runner.states.commit(1, 1, runner.ops)
    assert differing(memory(runner, 1), memory(runner, 2))


@pytest.mark.parametrize("name", HEADED)
def test_what_a_slot_remembers_is_what_its_tokens_alone_leave(name):
    """The head's cache and the row it goes on from too: whatever was drafted, accepted, rejected and caught up with."""
    ids = (oracle(name).ids * 3)[:100]
    runner, fresh = runner_of(name, depth=4), runner_of(name, depth=4)
    length = driven(runner, ids)
    fresh.seat(0, ids[:length], SamplingParams(), 150)
    for first in range(0, length, 32):
        fresh.step([Window(0, first, tuple(ids[first : min(first + 32, length)]), int(first + 32 >= length))])
    for each, slot in ((runner, 1), (fresh, 0)):
        each.drafts.settle(slot)
    assert differing(memory(runner, 1), memory(fresh, 0)) == []
    ask = Ask(ids[length], 4, lambda sure: True)
    assert runner.drafts.head.propose({1: ask})[1] == fresh.drafts.head.propose({0: ask})[0]
    # Negative control: a row that the head never saw.
    fresh.states.layers[-1].keys.data[fresh.states.pages.held[0][0]] += 1
    assert differing(memory(runner, 1), memory(fresh, 0))


@pytest.mark.parametrize("name", HEADED)
def test_a_kept_sequence_is_gone_on_with_as_if_it_had_never_been_away(name):
    """Two continuations of one kept prefix, which share its pages: each drafts what a fresh read of its text does."""
    ids = (oracle(name).ids * 4)[:150]
    keeping = Keeping(spacing=Spacing(PAGE, PAGE))
    kept, others = runner_of(name, keeping=keeping), []
    first = ids[: 2 * PAGE + 5]
    kept.seat(0, first, SamplingParams(), 180)
    read(kept, 0, first)
    for slot, ending in ((1, [7, 8, 9]), (2, [100, 101, 102])):
        text = [*ids[: 2 * PAGE], *ending]
        held = kept.seat(slot, text, SamplingParams(), 180)
        assert held.tokens == 2 * PAGE
        others.append((slot, text))
        read(kept, slot, text)
    for slot, text in [(0, first), *others]:
        fresh = runner_of(name)
        fresh.seat(0, text, SamplingParams(), 180)
        read(fresh, 0, text)
        for each, at in ((kept, slot), (fresh, 0)):
            each.drafts.settle(at)
        assert differing(memory(kept, slot), memory(fresh, 0)) == []
    kept.states.pages.check([p for node in kept.cache.tree.nodes() for p in node.pages or ()])


@pytest.mark.parametrize("name", HEADED)
def test_parked_and_released_states_come_back_with_their_head(name):
    """After drafts that were right and wrong: released, its pages used by others, and seated again."""
    ids = (oracle(name).ids * 4)[:150]
    runner = runner_of(name, depth=4)
    length = driven(runner, ids)
    runner.drafts.settle(1)
    before = memory(runner, 1)
    runner.release(1)
    runner.seat(1, ids[:9], SamplingParams(), 60)
    read(runner, 1, ids[:9])
    held = runner.seat(2, [*ids[:length], 3], SamplingParams(), 180)
    assert held.tokens == length
    assert differing(before, memory(runner, 2)) == []


@pytest.mark.parametrize("name", HEADED)
def test_states_go_on_beside_the_host_until_somebody_looks(name):
    """With one thread they go on at the last moment: that is the negative control, before it they are the old ones."""
    ids, runner, whole = oracle(name).ids[:40], plain_of(name), plain_of(name)
    for each in (runner, whole):
        each.seat(0, ids[:9], SamplingParams(), 150)
        each.step([Window(0, 0, tuple(ids[:9]), 1)])
    at, places = 9, kinds(runner)
    for _ in range(4):
        before = [tensor[0].clone() for _, tensor in runner.states.recurrent()]
        forced(runner, Window(0, at, (*ids[at : at + 2], 5), 3), 1)
        replayed = runner.states.recurrences.under_way is not None
        old = [getattr(runner.states._layers[i], kind)[0] for i, kind in places]
        assert all(torch.equal(a, b) for a, b in zip(old, before, strict=True)) == replayed
        whole.step([Window(0, at, tuple(ids[at : at + 2]), 1)])
        at += 2
        assert differing(memory(runner, 0), memory(whole, 0)) == []
        assert runner.states.recurrences.under_way is None
    assert replayed


def kinds(runner):
    """(layer, tensor) as `recurrent` has them."""
    return [(int(i), kind) for i, _, kind in (name.partition(".") for name, _ in runner.states.recurrent())]
