"""Any order of requests, cancels and steps: everybody gets the answer that is given alone, and nobody starves."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.engine_bench import Bench
from fakes import FakeRunner
from reference.decoding import alone
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.window import Window
from strata.engine.events import Finished, Reason
from strata.engine.request import QueueFullError, Request
from strata.engine.settings import Settings
from strata.sampling.params import SamplingParams

WAIT = 6
"""Seconds, and rounds, that a prompt may be overtaken for."""


class Interleaving(RuleBasedStateMachine):
    """Any order of requests, steps, cancels and yields: each session says what it says alone."""

    @initialize(
        slots=st.integers(1, 4),
        step_tokens=st.integers(1, 24),
        chunk=st.integers(1, 24),
        drafts=st.integers(0, 5),
        keeps=st.booleans(),
    )
    def start(self, slots: int, step_tokens: int, chunk: int, drafts: int, keeps: bool) -> None:
        limits = Limits(slots, 48, step_tokens)
        # A small vocabulary makes shared beginnings, stop ids and right drafts frequent.
        runner = FakeRunner(limits, vocabulary=5, draft_depth=drafts, keeps=keeps)
        self.bench = Bench(runner, Settings(chunk_tokens=min(chunk, step_tokens), queue_limit=3, max_wait_s=WAIT))
        self.disturbed: set[str] = set()
        self.last_served: dict[str, int] = {}
        self.round = 0

    @rule(
        tokens=st.lists(st.integers(0, 4), min_size=1, max_size=30),
        max_new=st.none() | st.integers(0, 18),
        stop=st.sampled_from([(), (1,), (1, 4)]),
        seed=st.integers(0, 2),
        draft=st.none() | st.integers(0, 3),
        priority=st.integers(0, 1),
        echo=st.booleans(),
    )
    def submit(
        self,
        tokens: list[int],
        max_new: int | None,
        stop: tuple[int, ...],
        seed: int,
        draft: int | None,
        priority: int,
        echo: bool,
    ) -> None:
        name = f"r{len(self.bench.sessions)}"
        params = SamplingParams(seed=seed)
        request = Request(
            name, tuple(tokens), max_new, params, stop_ids=stop, echo_stop=echo, draft=draft, priority=priority
        )
        free = sum(slot.session is None for slot in self.bench.admission.slots)
        full = len(self.bench.admission.waiting) >= 3 + free
        if full:
            with pytest.raises(QueueFullError):
                self.bench.submit(request)
        else:
            self.bench.submit(request)

    @rule(data=st.data(), cancels=st.booleans())
    @precondition(lambda self: bool(self.bench.sessions))
    def disturb(self, data: st.DataObject, cancels: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.bench.sessions)))
        self.disturbed.add(name)
        session = self.bench.sessions[name]
        if cancels:
            session.cancel()
        else:
            session.give_way()

    @rule(count=st.integers(1, 6))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.check_step(self.bench.step())

    def check_step(self, windows: list[Window]) -> None:
        self.round += 1
        admission = self.bench.admission
        busy = {slot.session.request.id for slot in admission.slots if slot.session is not None}
        assert sum(len(window.tokens) for window in windows) <= admission.limits.step_tokens
        assert windows or not busy
        # Who was set aside waits in line, by other rules.
        self.last_served = {name: at for name, at in self.last_served.items() if name in busy}
        for slot in admission.slots:
            if slot.session is not None:
                name = slot.session.request.id
                first = self.last_served.setdefault(name, self.round)
                window = next((window for window in windows if window.slot == slot.index), None)
                reads = slot.reading or (window is not None and window.start < len(slot.session.request.tokens))
                if window is not None:
                    self.last_served[name] = self.round
                # A wait counts from the end of the step that served it, so one round more.
                most = admission.limits.slots + (WAIT + 1 if reads else 0)
                assert self.round - first <= most, "a seated session starves"

    @invariant()
    def every_session_says_what_it_says_alone(self) -> None:
        for name, session in self.bench.sessions.items():
            words, reason, stop_id = alone(session.request, 48, vocabulary=5)
            said = self.bench.answer(name)
            ends = [event for event in self.bench.events[name] if isinstance(event, Finished)]
            assert len(ends) <= 1
            if not ends or ends[0].reason is Reason.CANCEL:
                assert said == words[: len(said)]
                assert not ends or name in self.disturbed
            else:
                assert said == words
                assert (ends[0].reason, ends[0].stop_id, ends[0].generated) == (reason, stop_id, len(words))

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.run()
        self.every_session_says_what_it_says_alone()
        ends = [self.bench.finished(name) for name in self.bench.sessions]
        tally = self.bench.tally
        assert sum(tally.finished.values()) == tally.submitted == len(ends)
        assert tally.generated_tokens == sum(end.generated for end in ends)
        assert not self.bench.runner.params, "every slot was released"


TestInterleaving = Interleaving.TestCase
TestInterleaving.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


class Deaf(FakeRunner):
    """Forgets to cut a slot's state back: the next session in it answers from the last one's text."""

    def seat(self, slot: int, tokens: Any, *rest: Any) -> Held:
        held = super().seat(slot, tokens, *rest)
        self.states[slot] = [(token + 1) % self.vocabulary for token in tokens[: held.tokens]]
        return held


def test_the_comparison_with_the_solo_run_goes_red_for_a_leaking_state() -> None:
    b = Bench(Deaf(Limits(1, 64, 16)))
    b.ask("a", 8, 4)
    b.run()
    b.submit(replace(b.sessions["a"].request, id="b"))
    b.run()
    assert b.answer("a") == alone(b.sessions["a"].request, 64)[0]
    assert b.answer("b") != alone(b.sessions["b"].request, 64)[0]
