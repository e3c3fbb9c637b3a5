"""Drafts change speed only: the tokens are those of a runner that makes none."""

import pytest

from models.heads import HEADED
from runtime.drafting import LENGTH, Knowing, alone, answers, requests, runner_of, texts
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Reason, Token
from strata.engine.request import Request
from strata.engine.settings import Settings
from strata.runtime.drafts import Drafting
from strata.runtime.keeping import Keeping
from strata.state.sequence import PAGE
from strata.state.stops import Spacing


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
    runner = runner_of(name, drafting, slots)
    said, ends = answers(runner, requests("told"))
    assert said == alone(name)
    assert sum(end.accepted for end in ends.values()) > 60
    assert set(runner.drafts.chooser.counts["told"].taken) == {0, 1, 2, 3, 4, 5, 6}
    assert all(end.generated == LENGTH for end in ends.values())


def test_a_draft_that_was_taken_unchecked_would_be_seen(monkeypatch):
    """Negative control: with an acceptance rule that takes every draft the answers differ."""
    monkeypatch.setattr("strata.runtime.seat.accepted", lambda drafts, drawn: len(drafts))
    drafting = Drafting(depth=6, drafters={"told": Knowing(texts("qwen3_next"))})
    said, ends = answers(runner_of("qwen3_next", drafting, 1), requests("told"))
    assert said != alone("qwen3_next") or any(end.reason is Reason.ERROR for end in ends.values())


@pytest.mark.parametrize("name", HEADED)
def test_an_answer_ends_at_a_stop_inside_a_draft(name):
    """At every token of the greedy answer that has not come before: nothing after it is said, and it is not counted.

    Of most the same step had drawn more tokens behind it.
    """
    said = [t.token for t in alone(name)["greedy"]]
    drafting = Drafting(depth=6, drafters={"told": Knowing(texts(name), places=1)})
    runner, inside = runner_of(name, drafting, 1), 0
    step, drawn = runner.step, []

    def noted(windows):
        stepped = step(windows)
        drawn.extend([d.token for d in each.drawn] for each in stepped)
        return stepped

    runner.step = noted
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
        inside += any(said[at] in tokens[:-1] for tokens in drawn)
        drawn.clear()
    assert inside >= 7


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
