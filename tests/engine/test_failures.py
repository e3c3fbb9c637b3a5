"""Whatever the runner does, nobody waits for ever: failed steps, seats and ends, and a step that hangs."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from engine.live import Started, ask, collect, gated
from fakes import FakeRunner
from reference.decoding import alone
from strata.core.errors import EngineError
from strata.core.order import Order
from strata.core.window import Window
from strata.engine.events import Reason
from strata.engine.request import Request
from strata.engine.runner import Stepped

pytestmark = pytest.mark.timeout(30)


def test_a_failed_step_fails_its_sessions_and_the_engine_goes_on(started: Started) -> None:
    engine, runner = started(gated())
    runner.fail_at = {3}
    assert runner.gate is not None
    sessions = [engine.submit(ask(name, max_new=50)) for name in "ab"]
    runner.gate.release(1000)
    for session in sessions:
        tokens, done = collect(session)
        assert (done.reason, done.code) == (Reason.ERROR, "failed")
        assert "step 3 was told to fail" in done.error
        assert tokens == alone(session.request, 256)[0][: len(tokens)]
        assert done.generated == len(tokens)
    assert sorted(runner.released) == [0, 1]
    assert collect(engine.submit(ask("c")))[0] == alone(ask("c"), 256)[0]
    status: Any = engine.status()
    assert (status["failed_steps"], status["fatal"]) == (1, None)


def test_failures_in_a_row_end_the_engine_and_every_session(started: Started) -> None:
    engine, runner = started(gated(), max_failures=2)
    runner.fail_at = set(range(1, 100))
    reasons: list[str] = []
    engine.on_fatal(reasons.append)
    sessions = [engine.submit(ask(f"r{i}")) for i in range(7)]
    assert runner.gate is not None
    runner.gate.release(1000)
    ends = [collect(session)[1] for session in sessions]
    assert {(end.reason, end.code) for end in ends} == {(Reason.ERROR, "failed")}
    while not reasons:
        time.sleep(0.001)
    assert reasons == [engine.fatal]
    assert "2 failures in a row" in reasons[0]
    assert runner.calls == 2
    with pytest.raises(EngineError, match="the engine is down: the step failed"):
        engine.submit(ask("late"))
    late: list[str] = []
    engine.on_fatal(late.append)
    assert late == reasons


def test_a_good_step_between_failures_resets_the_count(started: Started) -> None:
    engine, runner = started(max_failures=2)
    runner.fail_at = {1, 3, 5}
    for name in ("a", "b", "c"):
        assert collect(engine.submit(ask(name, max_new=5)))[1].reason is Reason.ERROR
        runner.calls = {1: 1, 3: 3, 5: 5}[runner.calls]
    assert engine.fatal is None
    assert collect(engine.submit(ask("d")))[1].reason is Reason.LENGTH


def test_a_seat_that_refuses_the_request_fails_only_that_one(started: Started) -> None:
    engine, runner = started()
    done = collect(engine.submit(Request("a", (1, 99), 3)))[1]
    assert (done.reason, done.code, done.error) == (Reason.ERROR, "bad_request", "token 99 is not in 0 to 49")
    assert runner.released == []
    assert collect(engine.submit(ask("b")))[1].reason is Reason.LENGTH


def test_a_seat_that_fails_counts_as_a_failure_of_the_runner(started: Started) -> None:
    engine, runner = started(max_failures=2)
    runner.fail_seat = True
    done = collect(engine.submit(ask("a")))[1]
    assert "preparing slot 0 failed: EngineError: seat was told to fail" in done.error
    assert engine.fatal is None
    assert collect(engine.submit(ask("b")))[1].reason is Reason.ERROR
    assert engine.fatal is not None


def test_a_slot_that_cannot_be_released_ends_the_engine(started: Started) -> None:
    engine, runner = started()
    runner.fail_release = True
    reasons: list[str] = []
    engine.on_fatal(reasons.append)
    assert collect(engine.submit(ask("a")))[1].reason is Reason.LENGTH
    while not reasons:
        time.sleep(0.001)
    assert "releasing slot 0 failed" in reasons[0]


class Lying(FakeRunner):
    """Says that a window made one token more than it scored."""

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        return [Stepped(s.slot, (*s.drawn, *s.drawn), s.length) for s in super().step(windows)]


def test_a_result_that_cannot_be_is_a_failed_step(started: Started) -> None:
    engine, _ = started(Lying())
    done = collect(engine.submit(ask("a")))[1]
    assert done.reason is Reason.ERROR
    assert "answers slot 0 with score 1" in done.error


def test_stopping_ends_what_waits_and_what_runs(started: Started) -> None:
    engine, runner = started(gated())
    sessions = [engine.submit(ask(f"r{i}", max_new=100)) for i in range(6)]
    runner.entered.acquire()
    assert runner.gate is not None
    threading.Timer(0.02, runner.gate.release, args=(1000,)).start()
    engine.stop()
    assert {collect(session)[1].reason for session in sessions} == {Reason.CANCEL}
    assert len(runner.released) == 4
    with pytest.raises(EngineError, match="the engine is down: it was stopped"):
        engine.submit(ask("late"))


def test_a_step_that_hangs_leaves_no_client_waiting(started: Started) -> None:
    engine, runner = started(gated())
    sessions = [engine.submit(ask(f"r{i}")) for i in range(6)]
    runner.entered.acquire()
    with pytest.raises(EngineError, match="did not return within"):
        engine.stop(timeout_s=0.05)
    assert {collect(session)[1].reason for session in sessions} == {Reason.CANCEL}
    assert runner.gate is not None
    runner.gate.release(1000)  # what comes back late reaches nobody
    engine.stop()
    assert all(session.finished is not None for session in sessions)
    assert engine.status()["fatal"] is None


def test_orders_are_refused_once_the_engine_is_down(started: Started) -> None:
    engine, runner = started()
    answers: list[Any] = []
    engine.order(Order("park"), answers.append)
    while not answers:
        time.sleep(0.001)
    engine.stop()
    assert answers == [{"orders": 1}] and runner.closed
    with pytest.raises(EngineError, match="the engine is down"):
        engine.order(Order("save"), answers.append)
