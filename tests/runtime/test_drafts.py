"""Drafts change speed only: tokens, states and what is kept are those of a runner that makes none."""

import functools

import numpy as np
import pytest
import torch

from models.heads import HEADED, headed, load_headed
from models.made import load, ops_of, oracle, path_of, same_bits
from strata.core.errors import EngineError
from strata.core.limits import Limits
from strata.core.window import Window
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Reason, Token
from strata.engine.request import Request
from strata.engine.settings import Settings
from strata.kernels.naive_ops import NaiveOps
from strata.runtime.drafts import Drafting
from strata.runtime.head_steps import HeadSteps
from strata.runtime.keeping import Keeping
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.speculate.drafter import Ask, Proposal
from strata.state.sequence import PAGE
from strata.state.stops import Spacing

PARAMS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=1.5, top_k=50, seed=3),
    "penalties": SamplingParams(
        temperature=0.9, seed=4, repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.3
    ),
    "bias": SamplingParams(temperature=1.1, min_p=0.01, seed=5, logit_bias=((17, 4.0), (30, -100.0)), logprobs=2),
}
LENGTH = 40


@functools.cache
def with_head(name, tokens=None):
    model, head = load_headed(headed(name, "gguf"))
    return model, head if tokens is None else head.narrowed(torch.arange(tokens))


def runner_of(name, drafting=None, slots=3, context=192, keeping=None, depth=None):
    if drafting is None:
        model, head = with_head(name)
        drafting = Drafting(head, depth)
    else:
        model = with_head(name)[0]
    return DeviceRunner(model, ops_of(), Limits(slots, context, 64), keeping=keeping, drafting=drafting)


def plain_of(name, slots=3, context=192):
    return DeviceRunner(load(path_of(name, "gguf")), ops_of(), Limits(slots, context, 64))


class Knowing:
    """A drafter that knows every answer, and is wrong at places that differ from proposal to proposal."""

    def __init__(self, texts):
        self.texts = [tuple(text) for text in texts]
        self.told = {}
        self.turn = 0

    def begin(self, slot, tokens):
        self.told[slot] = []

    def extend(self, slot, tokens):
        self.told[slot] += tokens

    def rest(self, slot):
        self.told.pop(slot, None)

    def knows(self, slot):
        return slot in self.told

    def forget(self, slot):
        self.told.pop(slot, None)

    def propose(self, asks):
        found = {}
        for slot, ask in asks.items():
            said = (*self.told[slot], ask.pending)
            text = next(text for text in self.texts if text[: len(said)] == said)
            tokens = list(text[len(said) : len(said) + ask.depth])
            self.turn += 1
            if wrong := self.turn % 7:
                tokens[wrong - 1 : wrong] = [(t + 1) % 199 for t in tokens[wrong - 1 : wrong]]
            found[slot] = Proposal(tuple(tokens), (0.9,) * len(tokens))
        return found

    def spent(self):
        return None

    def took(self):
        return 0.0


def requests(tag, length=LENGTH):
    ids = oracle("qwen4_exp").ids
    prompts = {"greedy": ids[:30], "sampled": ids[3:12], "penalties": ids[10:45], "bias": ids[40:42]}
    return {n: Request(f"{tag}-{n}", tuple(prompts[n]), length, PARAMS[n]) for n in PARAMS}


def answers(runner, wanted, chunk=8):
    """(name -> its tokens with log-probabilities, name -> how it finished); all at once."""
    engine = Engine(runner, EngineSettings(scheduler=Settings(chunk_tokens=chunk)))
    engine.start()
    try:
        sessions = {name: engine.submit(request) for name, request in wanted.items()}
        events = {name: list(session.events()) for name, session in sessions.items()}
    finally:
        engine.stop()
    said = {name: [e for e in found if isinstance(e, Token)] for name, found in events.items()}
    return said, {name: found[-1] for name, found in events.items()}


@functools.cache
def alone(name):
    """What every request says of a runner without drafts."""
    return answers(plain_of(name, 4), requests("alone"))[0]


@functools.cache
def texts(name):
    """Prompt and answer of every request."""
    said, asked = alone(name), requests("alone")
    return [asked[n].tokens + tuple(t.token for t in said[n]) for n in PARAMS]


@pytest.mark.parametrize("depth", [1, 3, None])
@pytest.mark.parametrize("name", HEADED)
def test_the_models_own_drafts_change_no_token(name, depth):
    runner = runner_of(name, depth=depth)
    said, ends = answers(runner, requests("head"))
    assert said == alone(name)
    assert all(end.reason is Reason.LENGTH for end in ends.values())
    assert depth is None or sum(end.drafted for end in ends.values()) > 60


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("name", HEADED)
def test_right_and_wrong_drafts_change_no_token(name, slots):
    """Rejected at every place, some windows accepted whole; in every slot and beside prompts that are being read."""
    drafting = Drafting(depth=6, drafters={"told": Knowing(texts(name))})
    said, ends = answers(runner_of(name, drafting, slots), requests("told"))
    assert said == alone(name)
    assert sum(end.accepted for end in ends.values()) > 60
    assert all(end.generated == LENGTH for end in ends.values())


def test_a_draft_that_was_taken_unchecked_would_be_seen(monkeypatch):
    """Negative control: with an acceptance rule that takes every draft the answers differ."""
    monkeypatch.setattr("strata.runtime.runner.accepted", lambda drafts, drawn: len(drafts))
    drafting = Drafting(depth=6, drafters={"told": Knowing(texts("qwen3_next"))})
    said, ends = answers(runner_of("qwen3_next", drafting, 1), requests("told"))
    assert said != alone("qwen3_next") or any(end.reason is Reason.ERROR for end in ends.values())


@pytest.mark.parametrize("name", HEADED)
def test_an_answer_ends_at_a_stop_inside_a_draft(name):
    """At every token of the greedy answer that has not come before: nothing after it is said, and it is not counted."""
    said = [t.token for t in alone(name)["greedy"]]
    drafting = Drafting(depth=6, drafters={"told": Knowing(texts(name))})
    runner = runner_of(name, drafting, 1)
    for at in [i for i, token in enumerate(said) if token not in said[:i]][:12]:
        asked = requests(f"stop{at}")["greedy"]
        stopped = Request(asked.id, asked.tokens, LENGTH, asked.params, stop_ids=(said[at],))
        engine = Engine(runner)
        engine.start()
        events = list(engine.submit(stopped).events())
        engine._stopping = True
        engine._wake()
        engine._thread.join()
        assert [e.token for e in events if isinstance(e, Token)] == said[:at]
        assert events[-1].reason is Reason.STOP and events[-1].generated == at


class Leaving:
    """Runs an engine of two slots in which the client of "greedy" leaves while a window of its drafts is under way."""

    def __init__(self, name, turns):
        """It leaves during the window number `turns` that has drafts of it."""
        keeping = Keeping(spacing=Spacing(PAGE, PAGE))
        drafting = Drafting(depth=6, drafters={"told": Knowing(texts(name))})
        self.runner = runner_of(name, drafting, 2, keeping=keeping)
        self.turns, self.step, self.session = turns, self.runner.step, None
        self.runner.step = self.left
        self.engine = Engine(self.runner, EngineSettings(scheduler=Settings(chunk_tokens=8)))

    def left(self, windows):
        """A step, and perhaps the client's leaving before its results are there."""
        mine = [w for w in windows if w.score > 1 and w.start >= 30 and w.slot == 0]
        self.turns -= bool(mine)
        if mine and self.turns == 0:
            self.session.cancel()
        return self.step(windows)

    def run(self):
        """Everything that the one said before it left, and that the other and a next turn say."""
        asked = requests("leaving")
        self.engine.start()
        try:
            self.session = self.engine.submit(asked["greedy"])
            other = self.engine.submit(asked["sampled"])
            said, rest = list(self.session.events()), list(other.events())
            tokens = tuple(e.token for e in said if isinstance(e, Token))
            more = Request("again", asked["greedy"].tokens + tokens, LENGTH - len(tokens))
            again = list(self.engine.submit(more).events())
        finally:
            self.engine.stop()
        return said, rest, again


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("name", HEADED)
def test_a_client_that_leaves_inside_a_draft(name, turns):
    """What it got is the beginning of its answer, others say theirs, and the next turn goes on where it was left."""
    said, rest, again = Leaving(name, turns).run()
    expected = [t.token for t in alone(name)["greedy"]]
    tokens = [e.token for e in said if isinstance(e, Token)]
    assert said[-1].reason is Reason.CANCEL and 0 < len(tokens) < LENGTH
    assert tokens == expected[: len(tokens)]
    assert [e.token for e in rest if isinstance(e, Token)] == [t.token for t in alone(name)["sampled"]]
    assert tokens + [e.token for e in again if isinstance(e, Token)] == expected


@pytest.mark.parametrize("name", HEADED)
def test_a_state_restored_after_a_draft_goes_on_alike(name):
    """A snapshot taken behind a window that was cut short, restored in another slot and after others used the pages."""
    ids = (oracle(name).ids * 3)[:100]
    runner = runner_of(name, Drafting(depth=4, drafters={"told": Knowing([ids])}))
    length = driven(runner, ids)
    taken = runner.states.snapshot(1)
    window = Window(1, length, (ids[length], *[5] * 3), 4)
    forced(runner, window, 0)
    runner.states.restore(1, taken)
    runner.states.restore(2, taken)
    assert differing(memory(runner, 1), memory(runner, 2)) == []
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


def memory(runner, slot):
    """What the slot remembers; of a head's cache all but the last pair, which depends on the token after it."""
    states, length, found = runner.states, runner.states.length[slot], {}
    for name, tensor in states.recurrent():
        found[name] = tensor[slot].clone()
    held = states.pages.held[slot]
    for i, layer in enumerate(states.layers):
        count = length - (layer.carry is not None)
        for kind, plane in (("k", layer.keys), ("v", layer.values), ("raw", layer.raw_keys)):
            if plane is not None:
                entries = [plane.data[plane.at(held[p // PAGE], p % PAGE)] for p in range(count)]
                found[f"{i}.{kind}"] = torch.stack(entries) if entries else torch.empty(0)
        if layer.block_keys is not None:
            per = PAGE // layer.block_keys.page
            blocks = [
                layer.block_keys.data[layer.block_keys.at(held[b * per // PAGE], b % layer.block_keys.page)]
                for b in range(count // per)
            ]
            found[f"{i}.block"] = torch.stack(blocks) if blocks else torch.empty(0)
    return found


def differing(a, b):
    return [name for name in a if not torch.equal(a[name], b[name])]


def driven(runner, ids, slot=1):
    """The text read and decoded with drafts, right and wrong ones, always following the text."""
    runner.seat(slot, ids[:21], SamplingParams(), 150)
    runner.step([Window(slot, 0, tuple(ids[:13]), 0)])
    runner.step([Window(slot, 13, tuple(ids[13:21]), 1)])
    turn = 0
    while (at := runner.states.length[slot]) < len(ids) - 8:
        runner.seats[slot].pending = ids[at]
        if turn % 3:
            runner.draft({slot: 3})
        right = ids[at + 1 : at + 1 + turn % 4]
        forced(runner, Window(slot, at, (ids[at], *right, *[5] * (turn % 3)), 1 + len(right) + turn % 3), len(right))
        turn += 1
    return runner.states.length[slot]


def forced(runner, window, right):
    """A step in which the drafts of the text are taken for right, whatever the model says."""
    honest = runner.draw
    tokens = (*window.tokens[1 : 1 + right], window.tokens[0])

    def draw(given, outcome, first):
        drawn = honest(given, outcome, first)[0]
        return tuple(type(drawn)(token) for token in tokens)

    runner.draw = draw
    runner.step([window])
    del runner.draw


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


def read(runner, slot, text):
    stops = sorted({min(PAGE, len(text)), min(2 * PAGE, len(text)), len(text)})
    for stop in stops:
        start = runner.states.length[slot]
        if stop > start:
            for first in range(start, stop, 32):
                end = min(first + 32, stop)
                runner.step([Window(slot, first, tuple(text[first:end]), int(end == len(text)))])


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


def test_a_step_that_fails_leaves_nothing_of_its_slot_to_drafters(monkeypatch):
    runner = runner_of("qwen3_next", depth=2)
    runner.seat(0, [1, 2, 3], SamplingParams(), 20)

    def fail(*_):
        raise EngineError("told to")

    monkeypatch.setattr(runner.forwarder, "scored", fail)
    with pytest.raises(EngineError, match="told to"):
        runner.step([Window(0, 0, (1, 2, 3), 1)])
    assert not runner.drafts.head.readings
    runner.release(0)


def test_a_head_that_was_told_of_other_rows_says_so():
    runner = runner_of("qwen3_next")
    runner.seat(0, [1, 2, 3], SamplingParams(), 20)
    runner.forward([Window(0, 0, (1, 2, 3), 1)])
    runner.states.commit(0, 3, runner.ops)
    with pytest.raises(EngineError, match="slot 0 holds 3 tokens, its drafting head was told of other rows"):
        runner.draft({0: 2})


@pytest.mark.parametrize("name", HEADED)
def test_a_recorded_pass_equals_one_op_by_op(name):
    """Several slots, catching up and chained; and the specification gives the same."""
    found = []
    for ops in (ops_of(), ops_of(), NaiveOps()):
        model, head = load_headed(headed(name, "gguf"), ops)
        runner = DeviceRunner(model, ops, Limits(3, 128, 64), drafting=Drafting(head))
        if len(found) == 1:
            runner.drafts.head.steps._program_for = lambda shape: None
        found.append(passes(runner, head.width))
    for other in found[1:]:
        assert all(same_bits(a, b) for a, b in zip(found[0], other, strict=True))


def passes(runner, width):
    steps: HeadSteps = runner.drafts.head.steps
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(9, width)).astype(np.float32))
    for slot in range(3):
        runner.states.make_room(slot, 40)
    found = []
    for turn in range(3):
        windows = [Window(0, 3 * turn, (3, 4, 5), 1), Window(2, turn, (7 + turn,), 1)]
        passed = steps.run(windows, rows[turn : turn + 4], chained=False)
        found += [passed.logits.numpy().copy(), passed.hidden.numpy().copy()]
        passed = steps.run([Window(2, turn + 1, (9,), 1)], passed.hidden[1:].clone(), chained=True)
        found.append(passed.logits.numpy().copy())
        steps.run([Window(1, 3 * turn, (1, 2, 3), 0)], rows[turn : turn + 3], chained=False)
    return found


@pytest.mark.parametrize("name", HEADED)
def test_a_narrowed_head_proposes_the_best_of_its_tokens(name):
    model, head = with_head(name)
    some = torch.tensor([3, 8, 50, 51, 120])
    ids = oracle(name).ids[:20]
    chosen = []
    for each in (head, head.narrowed(some)):
        runner = DeviceRunner(model, ops_of(), Limits(1, 64, 64), drafting=Drafting(each, 1))
        runner.seat(0, ids, SamplingParams(), 40)
        runner.step([Window(0, 0, tuple(ids), 1)])
        steps = runner.drafts.head.steps
        run, kept = steps.run, []
        steps.run = lambda *a, _run=run, _kept=kept, **k: _kept.append(_run(*a, **k)) or _kept[-1]
        chosen.append((runner.draft({0: 1})[0][0], kept[-1].logits[0].numpy().copy()))
    (_, full), (token, few) = chosen
    assert same_bits(few, full[some.numpy()])
    assert token == int(some[int(few.argmax())])


def test_a_head_that_does_not_pay_rests_and_what_it_missed_is_not_taken_for_read():
    """Nor by a sequence that goes on from what was kept; a new one is read again when the head is awake."""
    name = "qwen4_exp"
    runner, ids = runner_of(name), (oracle(name).ids * 3)[:80]
    chooser, head = runner.drafts.chooser, runner.drafts.head
    chooser.costly.rest.rests = True
    runner.seat(0, ids[:70], SamplingParams(), 120)
    read(runner, 0, ids[:70])
    assert not head.knows(0) and not head.steps.recorded
    runner.release(0)
    chooser.costly.rest.rests = False
    assert runner.seat(1, ids[:75], SamplingParams(), 120).tokens == 70
    assert not head.knows(1)
    assert runner.seat(2, ids[40:70], SamplingParams(), 120).tokens == 0
    assert head.knows(2)
    read(runner, 1, ids[:75])
    runner.seats[1].pending = runner.seats[2].pending = 5
    read(runner, 2, ids[40:70])
    runner.draft({1: 3, 2: 3})
    assert set(chooser.offers[1].made) <= {"lookup"} and "mtp" in chooser.offers[2].made
