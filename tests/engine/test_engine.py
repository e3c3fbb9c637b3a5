"""The thread around the scheduler: events, status, waiting and room."""

import io
import threading
import time
from typing import Any

import pytest

from engine.live import Started, ask, collect, gated
from fakes import FakeRunner
from reference.decoding import alone
from strata.core.errors import CapacityError, RequestError
from strata.core.limits import Limits
from strata.core.log import Log
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Event, Finished, Progress, Reason, Reused, Token
from strata.engine.request import QueueFullError, Request
from strata.engine.session import Session
from strata.engine.settings import Settings

pytestmark = pytest.mark.timeout(30)


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
