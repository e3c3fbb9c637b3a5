"""Who runs next: with a fake device, no thread and a clock that is a number."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.engine_bench import Bench, bench
from fakes import FakeRunner
from reference.decoding import alone
from strata.core.errors import CapacityError, EngineError, RequestError, UsageError
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.sharing import Sharing
from strata.core.window import Window
from strata.engine.events import Finished, Progress, Reason, Reused, Yielded
from strata.engine.request import QueueFullError, Request
from strata.engine.runner import Drawn, Stepped
from strata.engine.settings import Settings
from strata.engine.slot import Slot, choose_slot
from strata.sampling.params import SamplingParams


def test_one_request_is_read_in_chunks_and_decoded() -> None:
    b = bench(chunk_tokens=4)
    b.ask("a", 10, 3)
    steps = [b.step() for _ in range(5)]
    prompt = b.sessions["a"].request.tokens
    assert steps[:3] == [
        [Window(0, 0, prompt[:4], 0)],
        [Window(0, 4, prompt[4:8], 0)],
        [Window(0, 8, prompt[8:], 1)],
    ]
    assert [(w.start, len(w.tokens), w.score) for step in steps[3:] for w in step] == [(10, 1, 1), (11, 1, 1)]
    assert [event for event in b.events["a"] if isinstance(event, Progress)] == [
        Progress(4, 10),
        Progress(8, 10),
        Progress(10, 10),
    ]
    assert b.answer("a") == alone(b.sessions["a"].request, 256)[0]
    assert b.finished("a") == Finished(Reason.LENGTH, 10, generated=3, steps=2, queue_s=1.0, prompt_s=2.0, decode_s=2.0)
    assert not b.admission.has_work()


def test_chunk_borders_stay_on_the_grid_after_a_reused_beginning() -> None:
    b = bench(slots=1, chunk_tokens=4)
    b.submit(Request("a", (1, 2, 3, 4, 5, 6), 1))
    b.run()
    b.submit(Request("b", (1, 2, 3, 40, 41, 42, 43, 44, 45, 46), 1))
    b.run()
    assert b.events["b"][0] == Reused(3)
    reads = [(w.start, len(w.tokens)) for step in b.runner.steps for w in step]
    assert reads == [(0, 4), (4, 2), (3, 1), (4, 4), (8, 2)]
    assert b.finished("b").reused == 3


@pytest.mark.parametrize(("slots", "rows", "chunk"), [(4, 4096, 512), (4, 512, 256), (1, 17, 16), (8, 4, 1)])
def test_the_chunk_leaves_every_slot_a_row_unless_it_is_given(slots: int, rows: int, chunk: int) -> None:
    assert bench(slots=slots, step_tokens=rows).scheduler.chunk_tokens == chunk


def test_a_session_with_drafts_gets_a_window_of_one_more() -> None:
    b = bench(drafts=3)
    b.ask("a", 5, 20)
    b.ask("b", 5, 20, draft=1)
    b.ask("c", 5, 20, draft=0)
    b.run()
    windows = [w for step in b.runner.steps for w in step if w.start >= 5]
    assert [max(len(w.tokens) for w in windows if w.slot == slot) for slot in range(3)] == [4, 2, 1]
    assert all(w.score == len(w.tokens) for w in windows)
    for name in "abc":
        assert b.answer(name) == alone(b.sessions[name].request, 256)[0]
        assert b.finished(name).generated == 20
    assert 0 < b.finished("a").accepted < b.finished("a").drafted
    assert b.finished("c").drafted == 0


@pytest.mark.parametrize("drafts", [0, 5])
@pytest.mark.parametrize(("prompt", "max_new"), [(10, 22), (31, 1), (10, None), (32, 0)])
def test_max_new_and_the_context_end_exactly(drafts: int, prompt: int, max_new: int | None) -> None:
    b = bench(context=32, drafts=drafts)
    b.ask("a", prompt, max_new)
    b.run()
    expected = 32 - prompt
    assert len(b.answer("a")) == b.finished("a").generated == expected
    assert b.finished("a").reason is Reason.LENGTH
    assert len(b.runner.states[0]) == max(prompt, 31)


def test_a_stop_id_ends_the_answer_and_is_reported_in_finished() -> None:
    plain = Request("a", (1, 2, 3), 30)
    words = alone(plain, 256)[0]
    stop = next(token for i, token in enumerate(words) if i >= 5 and token not in words[:i])
    cut = words.index(stop)
    for drafts in (0, 6):
        b = bench(drafts=drafts)
        b.submit(replace(plain, stop_ids=(stop,)))
        b.submit(replace(plain, id="b", stop_ids=(stop,), echo_stop=True))
        b.run()
        assert b.answer("a") == words[:cut]
        assert b.answer("b") == words[: cut + 1]
        for name, generated in (("a", cut), ("b", cut + 1)):
            done = b.finished(name)
            assert (done.reason, done.stop_id, done.generated) == (Reason.STOP, stop, generated)


def test_a_resumed_answer_reports_only_its_rest() -> None:
    b = bench()
    b.ask("a", 5, 8, stream_from=6)
    b.run()
    assert b.answer("a") == alone(b.sessions["a"].request, 256)[0][6:]
    assert b.finished("a").generated == 8


def test_prompts_are_read_beside_running_streams() -> None:
    b = bench(slots=2, step_tokens=16, chunk_tokens=8)
    b.ask("a", 4, 60)
    b.step()
    b.ask("long", 100, 2)
    mixed = [b.step() for _ in range(12)]
    assert all(sorted(len(w.tokens) for w in step) in ([1, 8], [1, 4]) for step in mixed)
    b.run()
    assert b.answer("a") == alone(b.sessions["a"].request, 256)[0]


def test_several_prompts_take_turns_when_they_do_not_fit_one_step() -> None:
    b = bench(slots=3, step_tokens=8, chunk_tokens=8)
    for name in "abc":
        b.ask(name, 24, 1)
    order = [b.step()[0].slot for _ in range(9)]
    assert order == [0, 1, 2] * 3


def test_several_prompts_share_a_step_that_has_room() -> None:
    b = bench(slots=3, step_tokens=16, chunk_tokens=8)
    for name in "abc":
        b.ask(name, 16, 1)
    assert [[w.slot for w in b.step()] for _ in range(3)] == [[0, 1], [2, 0], [1, 2]]


def test_more_slots_than_rows_rotate_fairly() -> None:
    b = bench(slots=5, step_tokens=2, chunk_tokens=2)
    for name in "abcde":
        b.ask(name, 1, 40)
    for _ in range(8):  # until all have been read
        b.step()
    counts = [0] * 5
    for _ in range(10):
        for window in b.step():
            counts[window.slot] += 1
    assert counts == [4] * 5


def test_a_chunk_of_a_whole_step_alternates_with_decoding() -> None:
    b = bench(slots=2, step_tokens=8, chunk_tokens=8)
    b.ask("a", 1, 50)
    b.step()
    b.ask("long", 64, 1)
    slots = [[w.slot for w in b.step()] for _ in range(6)]
    assert sorted(slots[:2]) == [[0], [1]]
    assert slots[0::2] == [slots[0]] * 3
    assert slots[1::2] == [slots[1]] * 3


def test_drafts_give_way_to_the_first_chunk_but_not_to_further_ones() -> None:
    b = bench(slots=3, step_tokens=16, chunk_tokens=8, drafts=10)
    b.ask("a", 1, 100)
    b.step()
    b.ask("b", 64, 1)
    b.ask("c", 64, 1)
    widths = {w.slot: len(w.tokens) for w in b.step()}
    assert widths == {0: 1 + 7, 1: 8}


def test_waiting_sessions_are_seated_by_priority_then_arrival() -> None:
    b = bench(slots=1)
    for name, priority in [("a", 0), ("b", 0), ("c", -5), ("d", 0)]:
        b.ask(name, 3, 1, priority=priority)
    b.run()
    assert sorted(b.events, key=lambda name: b.finished(name).queue_s) == ["c", "a", "b", "d"]


def test_a_full_queue_refuses_and_a_free_slot_is_no_queue() -> None:
    b = bench(slots=2, queue_limit=1)
    for name in "abc":
        b.ask(name, 3, 2)
    with pytest.raises(QueueFullError, match="3 requests wait already"):
        b.ask("d", 3, 2)
    b.step()
    with pytest.raises(QueueFullError, match="1 requests wait already"):
        b.ask("d", 3, 2)
    b.run()
    b.ask("d", 3, 2)
    b.run()
    assert b.tally.refused == 2
    assert b.tally.submitted == sum(b.tally.finished.values()) == 4


def test_refusals_leave_nothing_behind() -> None:
    b = bench(context=16)
    with pytest.raises(CapacityError, match=r"prompt of 10 tokens and 7 new ones .* 16 tokens"):
        b.ask("a", 10, 7)
    assert not b.admission.has_work()
    b.ask("a", 10, 6)
    with pytest.raises(RequestError, match="a request a is already under way"):
        b.ask("a", 10, 6)
    b.run()
    assert b.finished("a").generated == 6


def test_a_cancel_frees_the_slot_at_the_next_step() -> None:
    b = bench(slots=1)
    session = b.ask("a", 3, 50)
    b.ask("b", 3, 2)
    b.ask("c", 3, 2).cancel()
    b.step()
    b.step()
    session.cancel()
    b.step()
    assert b.runner.released == [0]
    assert (b.finished("a").reason, b.finished("a").generated) == (Reason.CANCEL, 2)
    assert b.finished("c") == Finished(Reason.CANCEL, 3, queue_s=1.0)
    b.run()
    assert b.answer("b") == alone(b.sessions["b"].request, 256)[0]


def test_a_deadline_ends_waiting_and_running_sessions() -> None:
    b = bench(slots=1)
    b.ask("a", 3, 50, deadline_s=5.0)
    b.ask("b", 3, 50, deadline_s=3.0)
    b.ask("c", 3, 2)
    b.run()
    assert (b.finished("a").reason, b.finished("a").generated) == (Reason.CANCEL, 4)
    assert (b.finished("b").reason, b.finished("b").queue_s) == (Reason.CANCEL, 3.0)
    assert (b.finished("b").code, b.finished("b").error) == ("deadline", "the deadline of 3 s has passed")
    assert b.finished("c").reason is Reason.LENGTH


def test_a_read_that_gives_way_goes_on_where_it_stopped() -> None:
    b = bench(slots=2, step_tokens=8, chunk_tokens=8)
    session = b.ask("a", 40, 3)
    b.step()
    b.step()
    session.give_way()
    b.step()
    assert b.events["a"][-2:] == [Yielded(16), b.finished("a")]
    assert b.finished("a").reason is Reason.CANCEL
    b.submit(replace(session.request, id="again"))
    b.run()
    assert b.events["again"][0] == Reused(16)
    assert b.answer("again") == alone(session.request, 256)[0]


def test_giving_way_does_not_touch_a_session_that_decodes() -> None:
    b = bench()
    session = b.ask("a", 3, 5)
    b.step()
    session.give_way()
    b.run()
    assert b.finished("a").reason is Reason.LENGTH
    waiting = b.ask("b", 3, 5)
    waiting.give_way()
    b.run()
    assert b.events["b"] == [Yielded(0), b.finished("b")]


def test_the_next_turn_finds_its_conversation_and_a_new_one_an_empty_slot() -> None:
    b = bench(slots=3)
    first = b.ask("a", 6, 4)
    b.run()
    b.submit(Request("other", (9, 9, 9), 2))
    b.run()
    assert [len(state) for state in b.runner.states.values()] == [9, 4, 0]
    turn = Request("a2", (*first.request.tokens, *b.answer("a"), 5, 6), 2)
    b.submit(turn)
    b.run()
    assert b.events["a2"][0] == Reused(9)
    assert b.answer("a2") == alone(turn, 256)[0]


def test_slot_choice() -> None:
    slots = [Slot(0, held=(1, 2, 3, 4), freed=3), Slot(1, held=(1, 9), freed=1), Slot(2, held=(5,), freed=2)]
    assert choose_slot(slots, (1, 2, 3, 7)).index == 0  # an edited last message
    assert choose_slot(slots, (1, 7)).index == 1  # half of a short conversation
    assert choose_slot(slots, (8,)).index == 1  # nothing in common: the one used longest ago
    assert choose_slot([*slots, Slot(3)], (8,)).index == 3  # a slot never used
    assert choose_slot([slots[0], slots[2]], (1, 7)).index == 2  # a short shared beginning destroys nothing


def test_a_request_waits_for_the_slot_it_names_and_lets_others_pass() -> None:
    b = bench(slots=2)
    b.ask("a", 3, 10, slot=1)
    b.ask("b", 3, 2, slot=1)
    b.ask("c", 3, 2)
    b.run()
    assert b.runner.released == [0, 1, 1]
    assert b.finished("b").queue_s > b.finished("c").queue_s


def result(window: Window, *tokens: int, length: int | None = None, slot: int | None = None) -> Stepped:
    held = window.end - window.score + len(tokens) if length is None else length
    return Stepped(window.slot if slot is None else slot, tuple(map(Drawn, tokens)), held)


def test_results_that_contradict_the_window_are_refused() -> None:
    b = bench(drafts=2)
    b.ask("a", 5, 20)
    b.step()
    b.scheduler.draft_caps(b.now)
    (window,) = b.scheduler.next_windows({0: (7, 8)})
    wrong = [
        [],
        [result(window, 7, slot=1)],
        [result(window)],
        [result(window, 7, 8, 9, 10)],
        [result(window, 7, length=5)],
        [result(window, 6, 8)],  # a draft kept that its row did not draw
    ]
    for results in wrong:
        with pytest.raises(EngineError):
            b.scheduler.settle([window], results, 1.0)
    assert b.tally.steps == 1
    b.scheduler.settle([window], [result(window, 7, 9)], 1.0)
    assert b.tally.accepted == {1: 1}


def test_more_drafts_than_fit_and_more_tokens_held_than_asked_are_refused() -> None:
    b = bench(draft_limit=2)
    b.ask("a", 5, 20)
    b.step()
    assert b.scheduler.draft_caps(b.now) == {0: 2}
    with pytest.raises(EngineError, match="3 drafts for slot 0, at most 2 fit"):
        b.scheduler.next_windows({0: (1, 2, 3)})
    b.ask("b", 5, 20)
    ((index, _),) = b.admission.admit()
    with pytest.raises(EngineError, match="5 tokens held of a prompt of 5"):
        b.admission.seated(index, Held(5), 1.0)


def test_windows_of_a_prompt_end_where_its_state_is_kept() -> None:
    b = bench(chunk_tokens=8)
    b.ask("a", 20, 2, sharing=Sharing((9, 3, 16, 20)))
    reads = [len(window.tokens) for _ in range(5) for window in b.step()]
    assert reads == [3, 5, 1, 7, 4]  # also at 8 and 16, the borders of chunks
    b.run()
    assert b.answer("a") == alone(b.sessions["a"].request, 256)[0]


def test_a_session_without_room_waits_again_unless_nobody_can_make_any() -> None:
    b = bench()
    b.ask("a", 5)
    ((index, _),) = b.admission.admit()
    assert not b.admission.unseat(index, "no room")
    b.ask("b", 6)
    ((other, _),) = b.admission.admit()
    assert b.admission.unseat(other, "no room")
    assert list(b.admission.waiting) == ["b"] and b.admission.slots[other].session is None
    assert b.admission.waiting["b"][1].lacks == "no room"


def test_who_finds_no_page_sits_the_step_out_and_goes_on_later() -> None:
    b = bench(slots=3, drafts=3, step_tokens=32)
    for name in "abc":
        b.ask(name, 5, 12)
    b.step()
    b.runner.told_short = {1}
    for _ in range(3):
        assert {window.slot for window in b.step()} == {0, 2}
    assert b.admission.slots[1].facts()["state"] == "waiting for pages" and b.tally.short == 3
    b.runner.told_short = set()
    assert 1 in {window.slot for window in b.step()} and b.admission.slots[1].facts()["state"] == "decoding"
    b.run()
    assert all(b.answer(name) == alone(b.sessions[name].request, 256)[0] for name in "abc")


@pytest.mark.parametrize("chunk", [0, 65])
def test_a_chunk_that_fits_no_step_is_refused(chunk: int) -> None:
    with pytest.raises(UsageError, match=f"from 1 to 64 tokens .* found {chunk}"):
        bench(step_tokens=64, chunk_tokens=chunk)


def test_every_token_is_counted_once() -> None:
    b = bench(slots=2, drafts=4, step_tokens=32, chunk_tokens=8)
    for i in range(6):
        b.ask(f"r{i}", 5 + 3 * i, 6 + i)
    b.run()
    ends = [b.finished(name) for name in b.events]
    windows = [w for step in b.runner.steps for w in step]
    assert b.tally.generated_tokens == sum(end.generated for end in ends) == sum(len(b.answer(n)) for n in b.events)
    assert b.tally.prompt_tokens + b.tally.reused_tokens == sum(end.prompt for end in ends)
    assert b.tally.reused_tokens == sum(end.reused for end in ends)
    assert (b.tally.drafted.total(), b.tally.accepted.total()) == (
        sum(end.drafted for end in ends),
        sum(end.accepted for end in ends),
    )
    assert sum(rows * count for rows, count in b.tally.rows.items()) == sum(len(w.tokens) for w in windows)
    assert sum(b.tally.rows.values()) == sum(b.tally.decoding.values()) == b.tally.steps == len(b.runner.steps)


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


def test_a_window_that_failed_ends_its_own_session_and_is_not_relied_on() -> None:
    b = bench(slots=2)
    b.runner.poisoned = {len("bad")}  # the first token of its prompt
    b.ask("bad", 8)
    b.ask("good", 8)
    b.run()
    end = b.finished("bad")
    assert (end.reason, end.code, end.error) == (Reason.ERROR, "failed", "this prompt was told to fail")
    assert b.answer("bad") == []
    assert b.answer("good") == alone(b.sessions["good"].request, 256)[0]
    assert b.admission.slots[0].held == ()
    assert b.tally.finished == {"error": 1, "length": 1}
