"""The thread around the scheduler: nobody waits for ever, whatever the runner does."""

import io
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fakes import FakeRunner
from reference.decoding import alone
from strata.core.errors import CapacityError, EngineError, RequestError
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.log import Log
from strata.core.order import Order
from strata.core.window import Window
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Event, Finished, Progress, Reason, Reused, Token
from strata.engine.request import QueueFullError, Request
from strata.engine.runner import Stepped
from strata.engine.session import Session
from strata.engine.settings import Settings

pytestmark = pytest.mark.timeout(30)


class Started:
    """An engine on a fake runner, stopped at the end of the test."""

    def __init__(self) -> None:
        self.engines: list[Engine] = []

    def __call__(self, runner: FakeRunner | None = None, **settings: Any) -> tuple[Engine, FakeRunner]:
        runner = runner or FakeRunner()
        engine = Engine(runner, EngineSettings(**settings))
        engine.start()
        self.engines.append(engine)
        return engine, runner


@pytest.fixture
def started() -> Iterator[Started]:
    start = Started()
    yield start
    for engine in start.engines:
        engine.stop()


def gated() -> FakeRunner:
    runner = FakeRunner()
    runner.gate = threading.Semaphore(0)
    return runner


def ask(name: str, prompt: int = 5, max_new: int | None = 6, **fields: Any) -> Request:
    return Request(name, tuple((i * 3 + len(name)) % 50 for i in range(prompt)), max_new, **fields)


def collect(session: Session) -> tuple[list[int], Finished]:
    events = list(session.events())
    assert [event for event in events if isinstance(event, Finished)] == [events[-1]]
    last = events[-1]
    assert isinstance(last, Finished)
    return [event.token for event in events if isinstance(event, Token)], last


def test_events_come_in_order_and_end_with_finished(started: Started) -> None:
    engine, _ = started()
    request = ask("a")
    events = list(engine.submit(request).events())
    words = alone(request, 256)[0]
    assert events[:-1] == [Progress(5, 5), *map(Token, words)]
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.reason, last.prompt, last.generated) == (Reason.LENGTH, 5, 6)
    again = list(engine.submit(ask("b")).events())
    assert again[0] == Reused(4)


def test_an_admission_leaves_a_line_with_its_phases() -> None:
    text, now = io.StringIO(), iter(range(1000))
    engine = Engine(FakeRunner(), EngineSettings(), Log(stream=text), clock=lambda: float(next(now)))
    sessions = [engine.submit(ask("a")), engine.submit(ask("b", max_new=1))]
    engine.start()
    for session in sessions:
        collect(session)
    engine.stop()
    lines = [line.split(" admission ")[1] for line in text.getvalue().splitlines()]
    assert [line.split()[0] for line in lines] == ["request=a", "request=b"]
    fields = dict(pair.split("=") for pair in lines[0].split())
    assert (fields["prompt"], fields["reused"], fields["tier"]) == ("5", "0", "none")
    phases = [float(fields[name]) for name in ("queue_ms", "match_ms", "restore_ms", "read_ms")]
    assert all(phase >= 1000 for phase in phases)
    assert float(fields["first_token_ms"]) == sum(phases)


def test_the_status_says_what_every_slot_does(started: Started) -> None:
    engine, runner = started(gated())
    assert runner.gate is not None
    session = engine.submit(ask("a", 5, 3))
    assert runner.entered.acquire(timeout=10)
    status: Any = engine.status()
    assert status["seats"][0] == {
        "id": 0, "state": "reading", "request": "a", "held": 0, "prompt": 5, "reused": 0, "generated": 0, "budget": 3,
    }  # fmt: skip
    assert status["seats"][1] == {"id": 1, "state": "idle", "held": 0}
    runner.gate.release(50)
    collect(session)
    after: Any = engine.status()
    assert [seat["state"] for seat in after["seats"]] == ["idle"] * 4


def test_many_clients_at_once_each_get_their_own_tokens(started: Started) -> None:
    engine, _ = started(FakeRunner(draft_depth=3))
    requests = [ask(f"r{i}", 3 + i % 7, 4 + i % 5) for i in range(30)]
    got: dict[str, tuple[list[int], Finished]] = {}

    def client(request: Request) -> None:
        got[request.id] = collect(engine.submit(request))

    threads = [threading.Thread(target=client, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for request in requests:
        assert got[request.id][0] == alone(request, 256)[0]
    status: Any = engine.status()
    assert status["sessions"] == {"submitted": 30, "refused": 0, "set_aside": 0, "short": 0, "finished": {"length": 30}}
    assert status["tokens"]["generated"] == sum(done.generated for _, done in got.values())
    assert status["running"] == status["reading"] == status["waiting"] == 0


def test_a_sink_gets_the_events_on_the_engines_thread(started: Started) -> None:
    engine, _ = started()
    seen: list[tuple[str, Event, str]] = []
    over = threading.Event()

    def sink(session: Session, event: Event) -> None:
        seen.append((session.request.id, event, threading.current_thread().name))
        if isinstance(event, Finished):
            over.set()

    engine.submit(ask("a"), sink)
    assert over.wait(10)
    assert [token.token for _, token, _ in seen if isinstance(token, Token)] == alone(ask("a"), 256)[0]
    assert {(name, thread) for name, _, thread in seen} == {("a", "strata-engine")}


def test_a_client_whose_sink_fails_is_dropped_and_the_others_go_on(started: Started) -> None:
    engine, runner = started()

    def sink(session: Session, event: Event) -> None:
        raise BrokenPipeError("nobody reads")

    session = engine.submit(ask("a", max_new=200), sink)
    assert collect(engine.submit(ask("b")))[0] == alone(ask("b"), 256)[0]
    while session.finished is None:
        time.sleep(0.001)
    assert session.finished.reason is Reason.CANCEL
    assert session.finished.generated < 200
    assert engine.fatal is None
    assert sorted(runner.released) == [0, 1]


def test_requests_that_cannot_be_taken_are_refused_at_the_door(started: Started) -> None:
    engine, runner = started(gated(), scheduler=Settings(queue_limit=0))
    with pytest.raises(CapacityError, match="do not fit the context"):
        engine.submit(ask("long", 250, 7))
    first = engine.submit(ask("a"))
    with pytest.raises(RequestError, match="already under way"):
        engine.submit(ask("a"))
    others = [engine.submit(ask(name)) for name in "bcd"]
    with pytest.raises(QueueFullError):
        engine.submit(ask("e"))
    assert runner.gate is not None
    runner.gate.release(1000)
    assert all(collect(session)[1].reason is Reason.LENGTH for session in [first, *others])


def test_a_cancel_works_while_a_step_runs(started: Started) -> None:
    engine, runner = started(gated())
    session = engine.submit(ask("a", max_new=200))
    runner.entered.acquire()
    assert engine.cancel("a")
    assert not engine.cancel("zz")
    assert runner.gate is not None
    runner.gate.release(1000)
    assert collect(session)[1].reason is Reason.CANCEL
    assert engine.find("a") is None
    assert runner.calls <= 2


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


def test_an_idle_engine_sleeps_until_there_is_work(started: Started) -> None:
    turns = 0

    def clock() -> float:
        nonlocal turns
        turns += 1
        return float(turns)

    engine = Engine(FakeRunner(), clock=clock)
    started.engines.append(engine)
    engine.start()
    collect(engine.submit(ask("a")))
    time.sleep(0.02)
    before = turns
    time.sleep(0.1)
    assert turns == before, "an idle loop asks for no time"
    collect(engine.submit(ask("b")))
    assert turns > before


def test_requests_may_come_before_the_start() -> None:
    engine = Engine(FakeRunner())
    session = engine.submit(ask("a"))
    engine.start()
    assert collect(session)[1].reason is Reason.LENGTH
    engine.stop()
    never = Engine(FakeRunner())
    session = never.submit(ask("a"))
    never.stop()
    assert collect(session)[1].reason is Reason.CANCEL


def test_the_status_says_what_was_asked_and_what_is_served(started: Started) -> None:
    runner = FakeRunner(Limits(slots=2, context=64, step_tokens=32))
    engine, _ = started(runner, requested_slots=8, slots_reason="memory for 2")
    collect(engine.submit(ask("a", 5, 4)))
    status: Any = engine.status()
    assert status["slots"] == {"requested": 8, "serving": 2, "reason": "memory for 2"}
    assert status["rows_per_step"] == {"1": 3, "5": 1}
    assert status["decoding_per_step"] == {"0": 1, "1": 3}
    assert status["tokens"] == {"prompt": 5, "reused": 0, "generated": 4, "drafted": 0, "accepted": 0}
    assert status["steps"] == 4
    assert status["runner"] == {"calls": 4}


def test_sessions_wait_for_room_and_nobody_overtakes(started: Started) -> None:
    runner = gated()
    runner.pool = 40
    engine, _ = started(runner)
    first, big, small = (engine.submit(ask(name, 5, new)) for name, new in (("a", 20), ("big", 30), ("c", 2)))
    assert runner.gate is not None
    runner.gate.release(10_000)
    got = {s.request.id: collect(s) for s in (first, big, small)}
    assert all(got[s.request.id][0] == alone(s.request, 256)[0] for s in (first, big, small))
    seated = [windows[0].slot for windows in runner.steps]
    assert all(len(windows) == 1 for windows in runner.steps[:20]), seated
    assert got["c"][1].queue_s >= got["big"][1].queue_s


def test_who_waits_for_room_is_told_with_the_reason() -> None:
    runner, said = gated(), io.StringIO()
    runner.pool = 40
    engine = Engine(runner, EngineSettings(), Log(stream=said))
    first, big = (engine.submit(ask(name, 5, new)) for name, new in (("a", 20), ("big", 30)))
    engine.start()
    assert runner.gate is not None
    for _ in range(3):
        runner.gate.release()
        runner.entered.acquire()
    (waits,) = engine.status()["queue"]  # type: ignore[misc]
    assert (waits["request"], waits["lacks"]) == ("big", "35 tokens were asked, 15 are free")
    runner.gate.release(10_000)
    assert collect(first)[0] and collect(big)[0]
    engine.stop()
    assert said.getvalue().count("waits for room request=big reason='35 tokens were asked") == 1


def test_a_follow_up_of_a_long_conversation_counts_as_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """It overtakes a prompt that is shorter as a whole, but new."""
    monkeypatch.setattr(FakeRunner, "known", lambda self, tokens: 98 if len(tokens) == 100 else 0)
    engine = Engine(FakeRunner(Limits(slots=1, context=256, step_tokens=64)))
    sessions = [engine.submit(ask(name, size)) for name, size in (("new", 60), ("follow-up", 100))]
    engine.start()
    new, follow_up = (collect(session)[1] for session in sessions)
    engine.stop()
    assert follow_up.queue_s < new.queue_s


def test_a_session_that_can_never_find_room_is_refused(started: Started) -> None:
    runner = FakeRunner()
    runner.pool = 40
    engine, _ = started(runner)
    (event,) = engine.submit(ask("a", 5, 40)).events()
    assert isinstance(event, Finished)
    assert (event.reason, event.code, event.error) == (Reason.ERROR, "too_long", "45 tokens were asked, 40 are free")
    assert collect(engine.submit(ask("b")))[0] == alone(ask("b"), 256)[0]


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


class Counting(FakeRunner):
    """Counts the rows of finished steps by the first token of their prompts; each step waits at the gate."""

    def __init__(self) -> None:
        super().__init__(Limits(slots=1, context=256, step_tokens=16))
        self.gate: threading.Semaphore = threading.Semaphore(0)
        self.names: dict[int, int] = {}
        self.rows: Counter[int] = Counter()

    def seat(self, slot: int, tokens: Sequence[int], *rest: Any) -> Held:
        self.names[slot] = tokens[0]
        return super().seat(slot, tokens, *rest)

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        found = super().step(windows)
        for window in windows:
            self.rows[self.names[window.slot]] += len(window.tokens)
        return found


@pytest.mark.parametrize(("moment", "steps", "before", "most"), [("read", 2, 16, 24), ("decoded", 10, 62, 63)])
def test_no_step_begins_for_a_client_that_left(
    started: Started, moment: str, steps: int, before: int, most: int
) -> None:
    runner = Counting()
    engine = Engine(runner)
    started.engines.append(engine)
    engine.start()
    session = engine.submit(Request("gone", (49,) * 60, 40))
    for _ in range(steps):
        assert runner.entered.acquire(timeout=10)
        runner.gate.release()
    assert runner.entered.acquire(timeout=10)  # the next step is under way
    assert runner.rows[49] == before, moment
    session.cancel()
    runner.gate.release(1000)
    assert collect(session)[1].reason is Reason.CANCEL
    assert collect(engine.submit(ask("next")))[0] == alone(ask("next"), 256)[0]
    assert runner.rows[49] == most, "the step that was under way, and no other"


def test_who_leaves_while_waiting_is_never_seated(started: Started) -> None:
    runner = Counting()
    engine = Engine(runner)
    started.engines.append(engine)
    engine.start()
    other = engine.submit(ask("other", max_new=40))
    assert runner.entered.acquire(timeout=10)
    session = engine.submit(Request("gone", (49,) * 60, 40))
    session.cancel()
    runner.gate.release(1000)
    assert collect(session)[1].reason is Reason.CANCEL
    assert collect(other)[0] == alone(other.request, 256)[0]
    assert 49 not in runner.names.values() and runner.rows[49] == 0
