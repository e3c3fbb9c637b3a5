"""What slots remember equals what a sequence read token by token leaves behind, whatever happened on the way."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from state.tiny import HIDDEN, LAYOUTS, RATIO, VOCABULARY, Tiny, copied, difference, memory
from strata.core.errors import CapacityError, EngineError, UnsupportedError
from strata.core.window import Window
from strata.kernels.naive_ops import NaiveOps
from strata.state import sequence
from strata.state.journal import LayerJournal
from strata.state.layout import ConvLayout, IndexLayout, KvLayout, LayerLayout
from strata.state.pages import PAGE
from strata.state.replay import Recurrences
from strata.state.sequence import SequenceStates

SLOTS = 3
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=["f32", "bf16", "int8"])
def tiny(request):
    torch.set_num_threads(1)
    return Tiny(kv_type=request.param)


@pytest.fixture(scope="module")
def fresh(tiny):
    """tokens -> the memory of a slot that only ever saw them, one at a time."""

    @functools.cache
    def make(tokens):
        states = tiny.states(1)
        tiny.extend(states, 0, list(tokens))
        return memory(states, 0)

    return make


def text(count, seed=0):
    return [int(t) for t in np.random.default_rng(seed).integers(0, VOCABULARY, count)]


TOKENS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9)
ACTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("step"), st.dictionaries(st.integers(0, 2), st.tuples(TOKENS, st.integers(0, 9)), min_size=1)
        ),
        st.tuples(st.just("save"), st.integers(0, 2)),
        st.tuples(st.just("restore"), st.integers(0, 2)),
        st.tuples(st.just("clear"), st.integers(0, 2)),
    ),
    max_size=12,
)


@QUICK
@given(acts=ACTS, order=st.randoms(use_true_random=False))
def test_any_history_leaves_what_its_tokens_alone_leave(tiny, fresh, acts, order):
    states, expected, saved = tiny.states(SLOTS), [()] * SLOTS, None
    for what, given_ in acts:
        if what == "step":
            windows = [Window(s, states.length[s], tuple(t), 0) for s, (t, _) in given_.items()]
            order.shuffle(windows)
            tiny.run(states, windows)
            order.shuffle(windows)
            for w in windows:
                keep = min(given_[w.slot][1], len(w.tokens))
                states.commit(w.slot, keep, tiny.ops)
                expected[w.slot] += w.tokens[:keep]
        elif what == "save":
            saved = (states.snapshot(given_), expected[given_])
        elif what == "clear":
            states.clear(given_)
            expected[given_] = ()
        elif saved is not None:
            before = copied(saved[0])
            states.restore(given_, saved[0])
            assert all(torch.equal(before.recurrent[k], v) for k, v in saved[0].recurrent.items())
            expected[given_] = saved[1]
        states.pages.check()
    for slot in range(SLOTS):
        assert states.length[slot] == len(expected[slot])
        assert difference(memory(states, slot), fresh(expected[slot])) == []


@pytest.mark.parametrize("start", range(1, 1 + 2 * RATIO))
def test_every_cut_at_every_place_in_a_block(tiny, fresh, start):
    """Windows of up to nine rows, cut to every length, at every place of an indexer's block."""
    tokens = tuple(text(start + 9))
    for kept in range(10):
        states = tiny.states(2)
        tiny.extend(states, 1, list(tokens[:start]), 3)
        tiny.run(states, [Window(1, start, tokens[start:], 0)])
        states.commit(1, kept, tiny.ops)
        assert difference(memory(states, 1), fresh(tokens[: start + kept])) == []
        states.pages.check()


def test_what_follows_a_cut_is_as_if_nothing_had_been_dropped(tiny):
    """Stale keys and blocks of the dropped rows lie in the pages; the outputs that follow must not see them."""
    tokens = text(PAGE + 30)
    plain, cut = tiny.states(1), tiny.states(1)
    tiny.extend(plain, 0, tokens[: PAGE + 10], 8)
    tiny.extend(cut, 0, tokens[: PAGE - 3], 8)
    while cut.length[0] < PAGE + 10:
        at = cut.length[0]
        right = tokens[at : min(at + 2, PAGE + 10)]
        tiny.run(cut, [Window(0, at, (*right, *text(11, seed=at)), 0)])
        cut.commit(0, len(right), tiny.ops)
    for at in range(PAGE + 10, PAGE + 20):
        window = [Window(0, at, (tokens[at],), 1)]
        y = [tiny.run(states, window, keep=False) for states in (plain, cut)]
        assert torch.equal(*y)
        for states in (plain, cut):
            states.commit(0, 1, tiny.ops)


def test_the_specification_takes_back_the_same_bits(tiny, fresh):
    naive = Tiny(NaiveOps(), tiny.kv_type)
    states, tokens = naive.states(1), tuple(text(12))
    naive.extend(states, 0, list(tokens[:6]), 6)
    naive.run(states, [Window(0, 6, tokens[6:], 0)])
    states.commit(0, 3, naive.ops)
    assert difference(memory(states, 0), fresh(tokens[:9])) == []


@pytest.mark.parametrize("forgotten", ["conv", "rule", "ngram"])
def test_a_journal_that_forgets_is_refused(tiny, monkeypatch, forgotten):
    """Negative control: the layers write all that a cut needs, and nothing is guessed when they do not."""

    class Forgetful(LayerJournal):
        def __setattr__(self, name, value):
            super().__setattr__(name, None if name == forgotten else value)

    monkeypatch.setattr(sequence, "LayerJournal", Forgetful)
    states = tiny.states(1)
    tiny.run(states, [Window(0, 0, (1, 2, 3), 0)])
    with pytest.raises(EngineError, match=r"layer [01] kept no journal"):
        states.commit(0, 2, tiny.ops)


@pytest.mark.parametrize(("mixed_up", "seen"), [("conv", {"1.conv"}), ("rule", {"1.delta"}), ("ngram", {"0.ngram"})])
def test_a_journal_of_the_wrong_rows_is_seen(tiny, fresh, monkeypatch, mixed_up, seen):
    """Negative control: each part of the journal is what its state is made from."""

    def turned(value):
        return tuple(v.roll(1, 0) for v in value) if isinstance(value, tuple) else value.roll(1, 0)

    class MixedUp(LayerJournal):
        def __setattr__(self, name, value):
            super().__setattr__(name, turned(value) if name == mixed_up and value is not None else value)

    monkeypatch.setattr(sequence, "LayerJournal", MixedUp)
    states = tiny.states(1)
    tiny.run(states, [Window(0, 0, (1, 2, 3, 4), 0)])
    states.commit(0, 3, tiny.ops)
    assert set(difference(memory(states, 0), fresh((1, 2, 3)))) == seen


def test_rows_that_are_not_run_again_are_seen(tiny, fresh, monkeypatch):
    """Negative control: a held state stays where it was until the rows that count are run."""
    monkeypatch.setattr(Recurrences, "advance", lambda *_: None)
    states = tiny.states(1)
    tiny.run(states, [Window(0, 0, (1, 2, 3, 4), 0)])
    states.commit(0, 3, tiny.ops)
    assert set(difference(memory(states, 0), fresh((1, 2, 3)))) == {"0.ngram", "1.conv", "1.delta"}


def test_windows_of_a_step_that_end_together(tiny, fresh):
    """One replay of all, with the rows between them left out; held and whole windows side by side."""
    states = tiny.states(3)
    windows = [Window(2, 0, (1, 2, 3), 0), Window(0, 0, (4, 5), 0), Window(1, 0, (6, 7, 8, 9), 0)]
    tiny.run(states, windows)
    states.commit_all({1: 1, 2: 2, 0: 0}, tiny.ops)
    for slot, tokens in enumerate([(), (6,), (1, 2)]):
        assert difference(memory(states, slot), fresh(tokens)) == []
    assert not states.journaling


def test_a_commit_of_all_that_cannot_be_leaves_all_open(tiny):
    states = tiny.states(2)
    tiny.run(states, [Window(0, 0, (1, 2, 3), 0), Window(1, 0, (4, 5), 0)])
    with pytest.raises(EngineError, match=r"slot 1: 3 rows to commit of a window of 2"):
        states.commit_all({0: 2, 1: 3}, tiny.ops)
    assert set(states.open) == {0, 1} and states.length == [0, 0]


def test_block_keys_that_are_not_refreshed_are_seen(tiny, fresh, monkeypatch):
    """Negative control: the comparison reads the indexer's cached block keys."""
    states, tokens = tiny.states(1), (*text(7), 1, 2, 3)
    tiny.extend(states, 0, list(tokens[:7]))
    tiny.run(states, [Window(0, 7, (9, 9), 0)])
    states.commit(0, 0, tiny.ops)
    with monkeypatch.context() as patch:
        patch.setattr(type(tiny.ops), "complete_blocks", lambda *_: None)
        tiny.extend(states, 0, list(tokens[7:]))
    assert difference(memory(states, 0), fresh(tokens)) == ["2.blocks"]


def test_a_snapshot_goes_on_elsewhere_while_others_run(tiny, fresh):
    states, tokens = tiny.states(3), tuple(text(PAGE + 9))
    tiny.extend(states, 0, list(tokens[: PAGE + 2]), 16)
    snapshot = states.snapshot(0)
    tiny.extend(states, 0, text(20, 7), 5)
    tiny.run(states, [Window(0, states.length[0], (3, 4, 5), 0), Window(1, 0, (6, 7), 0)])
    states.restore(2, snapshot)
    with pytest.raises(EngineError, match=r"slot 1 has a window open; a snapshot would be torn"):
        states.snapshot(1)
    states.commit(1, 1, tiny.ops)
    states.rollback(0, tiny.ops)
    tiny.extend(states, 2, list(tokens[PAGE + 2 :]), 3)
    assert difference(memory(states, 2), fresh(tokens)) == []
    assert difference(memory(states, 1), fresh((6,))) == []
    states.pages.check()


def test_errors_leave_things_as_they_were(tiny):
    states = tiny.states(2, context=70)
    tiny.extend(states, 0, text(66), 33)
    before = memory(states, 0)
    with pytest.raises(CapacityError, match=r"slot 0 holds 70 tokens, 71 were asked"):
        states.reserve(0, [1] * 5, 0, keep=False)
    assert not states.open
    with pytest.raises(EngineError, match=r"slot 0 has no window open"):
        states.commit(0, 1, tiny.ops)
    tiny.run(states, [Window(0, 66, (1, 2), 0)], keep=False)
    with pytest.raises(EngineError, match=r"slot 0 has a window open already"):
        states.reserve(0, [1], 0, keep=False)
    with pytest.raises(EngineError, match=r"3 rows to commit of a window of 2"):
        states.commit(0, 3, tiny.ops)
    with pytest.raises(EngineError, match=r"committed whole was cut to 1 rows"):
        states.commit(0, 1, tiny.ops)
    states.commit(0, 2, tiny.ops)
    after = memory(states, 0)
    assert all(np.array_equal(after[k][: len(v)], v) for k, v in before.items() if k.split(".")[-1] in ("keys", "raw"))
    states.pages.check()


def test_a_snapshot_of_a_longer_context_is_refused(tiny):
    long, short = tiny.states(1, 192), tiny.states(1, 100)
    tiny.extend(long, 0, text(110), 55)
    with pytest.raises(CapacityError, match=r"slot 0 holds 100 tokens, the snapshot has 110"):
        short.restore(0, long.snapshot(0))
    assert short.length == [0]


def test_a_cleared_slot_does_not_end_the_journal_of_the_others(tiny, fresh):
    states = tiny.states(3)
    tiny.run(states, [Window(0, 0, (1, 2, 3), 0), Window(1, 0, (4, 5, 6), 0)])
    states.clear(0)
    states.commit(1, 2, tiny.ops)
    assert difference(memory(states, 1), fresh((4, 5))) == []
    assert difference(memory(states, 0), fresh(())) == []
    assert not states.journaling


def test_heads_that_an_int8_cache_cannot_hold_are_refused():
    with pytest.raises(UnsupportedError, match=r"an int8 cache of heads of 40 values: expected a multiple of 32"):
        SequenceStates([LayerLayout(kv=KvLayout(2, 40))], 1, 128, "int8")


def test_blocks_that_do_not_fit_a_page_evenly_are_refused():
    """A block of 3 would need a key on a page that its tokens do not take."""
    layout = LayerLayout(kv=LAYOUTS[2].kv, index=IndexLayout(8, 3))
    with pytest.raises(UnsupportedError, match=r"blocks of 3 tokens: expected a divisor of 64"):
        SequenceStates([layout], 1, 128)


def test_bytes_are_those_of_the_tensors(tiny):
    states = tiny.states(2, 128)
    for layout, layer in zip(LAYOUTS, states.layers, strict=True):
        planes = [p for p in (layer.keys, layer.values, layer.raw_keys, layer.block_keys) if p is not None]
        tensors = [t for t in (layer.conv, layer.delta, layer.ngram) if t is not None]
        scales = [p.scales for p in planes if p.scales is not None]
        held = sum(p.data.nbytes for p in planes) + sum(t.nbytes for t in scales)
        assert held == layout.token_bytes(tiny.kv_type) * 2 * 128
        assert sum(t.nbytes for t in tensors) == layout.sequence_bytes() * 2
    assert LayerLayout(ngram=ConvLayout(2 * HIDDEN, 9)).sequence_bytes() == 4 * 2 * HIDDEN * 9
