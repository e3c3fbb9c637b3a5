"""The child process: events, refusals, crashes, restarts, ends."""

import asyncio
import itertools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from server.harness import QUICK, fake_process
from strata.core.errors import CapacityError, EngineError, RequestError
from strata.engine.events import Event, Finished, Reason, Token
from strata.engine.request import QueueFullError, Request
from strata.server.engine_child import Patience
from strata.server.engine_process import EngineProcess, RestartPolicy, State
from strata.server.inbox import Inbox
from strata.server.replies import EngineAwayError, refusal

NUMBERS = itertools.count(1)


def with_engine(
    body: Callable[[EngineProcess], Awaitable[None]], policy: RestartPolicy = QUICK, **script: Any
) -> EngineProcess:
    """Run `body` beside a ready fake engine; afterwards the child must be gone."""
    engine = fake_process(policy, **script)

    async def run() -> None:
        engine.start()
        try:
            await engine.wait_for(State.READY, State.FAILED)
            await body(engine)
        finally:
            pid = engine.pid
            await engine.stop()
            if pid is not None:
                assert engine.pid is None
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)

    asyncio.run(run())
    return engine


async def events_of(engine: EngineProcess, request: Request) -> AsyncGenerator[Event, None]:
    """Up to Finished; raises what came instead of it."""
    inbox = Inbox()
    engine.submit(request, inbox)
    while True:
        for name, item in await inbox.take():
            assert name == request.id
            if isinstance(item, Exception):
                raise item
            yield item
            if isinstance(item, Finished):
                return


async def all_of(engine: EngineProcess, **more: Any) -> list[Event]:
    request = Request(f"r{next(NUMBERS)}", (1, 2, 3), **more)
    return [event async for event in events_of(engine, request)]


def test_events_of_two_requests_do_not_mix() -> None:
    async def body(engine: EngineProcess) -> None:
        first, second = await asyncio.gather(all_of(engine), all_of(engine, max_new=1))
        assert [e.token for e in first if isinstance(e, Token)] == [65, 66, 67]
        assert [e.token for e in second if isinstance(e, Token)] == [65]
        assert isinstance(second[-1], Finished)
        assert second[-1].reason is Reason.LENGTH
        assert (await engine.status())["served"] == 2
        assert engine.info["batch_slots"] == "4"
        assert engine.running == 0

    with_engine(body, token_s=0.01)


def test_leaving_early_sends_stop(tmp_path: Path) -> None:
    log = tmp_path / "lines"

    async def body(engine: EngineProcess) -> None:
        stream = events_of(engine, Request("r1", (1, 2), 100))
        async for event in stream:
            if isinstance(event, Token):
                break
        await stream.aclose()
        engine.forget("r1")
        while (await engine.status())["running"]:
            await asyncio.sleep(0.01)
        assert (await engine.status())["served"] == 1

    with_engine(body, answers=[[65] * 100], token_s=0.05, log=str(log))
    assert "STOP r1" in log.read_text().splitlines()


def test_a_crash_fails_what_was_under_way_and_the_engine_comes_back(tmp_path: Path) -> None:
    async def body(engine: EngineProcess) -> None:
        seen = []
        with pytest.raises(EngineAwayError, match="cut off: the engine ended with exit code 9"):
            async for event in events_of(engine, Request("r1", (1, 2))):
                seen.append(event)
        assert sum(isinstance(e, Token) for e in seen) == 2
        with pytest.raises(EngineAwayError, match="not ready"):
            engine.submit(Request("r2", (1, 2)), Inbox())
        await engine.wait_for(State.READY)
        assert len([e for e in await all_of(engine) if isinstance(e, Token)]) == 3

    engine = with_engine(body, crash_after=2, crash_once=str(tmp_path / "crashed"))
    assert engine.restarts == 1


def test_fatal_text_reaches_the_waiting_request(tmp_path: Path) -> None:
    async def body(engine: EngineProcess) -> None:
        with pytest.raises(EngineAwayError, match="device lost"):
            await all_of(engine)

    with_engine(body, fatal_after=1)


def test_it_gives_up_after_the_limit() -> None:
    async def body(engine: EngineProcess) -> None:
        for _ in range(QUICK.limit + 1):
            assert await engine.wait_for(State.READY, State.FAILED) is State.READY
            with pytest.raises(EngineAwayError):
                await all_of(engine)
        assert await engine.wait_for(State.FAILED, State.READY) is State.FAILED
        assert "4 times in a row" in engine.reason

    with_engine(body, crash_after=0)


def test_a_model_that_cannot_load_is_not_tried_again() -> None:
    async def body(engine: EngineProcess) -> None:
        assert engine.state is State.FAILED
        assert "tensor x is cut short" in engine.reason
        assert engine.restarts == 0

    with_engine(body, fail_load=True)


def test_a_missing_program_is_a_failure() -> None:
    async def body() -> None:
        engine = EngineProcess(["/nonexistent/program"], fake_process()._log, QUICK)
        engine.start()
        assert await engine.wait_for(State.FAILED) is State.FAILED
        assert "cannot be started" in engine.reason
        await engine.stop()

    asyncio.run(body())


def test_a_deaf_child_is_killed() -> None:
    async def body(engine: EngineProcess) -> None:
        assert engine.state is State.READY

    engine = with_engine(body, RestartPolicy(patience=Patience(stop_s=0.2)), deaf=True)
    assert engine.exit_code == -9
    assert engine.state is State.STOPPED


def test_stopping_fails_what_is_under_way() -> None:
    async def body(engine: EngineProcess) -> None:
        task = asyncio.create_task(all_of(engine))
        await asyncio.sleep(0.05)
        await engine.stop()
        with pytest.raises(EngineAwayError, match="shutting down"):
            await task

    with_engine(body, answers=[[65] * 1000], token_s=0.05)


def test_stopping_while_loading_ends_at_once() -> None:
    async def body() -> None:
        engine = fake_process(RestartPolicy(patience=Patience(stop_s=0.2)), load_s=100)
        engine.start()
        await asyncio.sleep(0.05)
        with pytest.raises(EngineAwayError, match="loading"):
            engine.submit(Request("r1", (1,)), Inbox())
        await engine.stop()
        assert engine.state is State.STOPPED

    asyncio.run(body())


def testrefusals_have_their_kinds() -> None:
    async def busy(engine: EngineProcess) -> None:
        with pytest.raises(QueueFullError):
            await all_of(engine)

    async def bad(engine: EngineProcess) -> None:
        engine._send("GEN r7 nonsense 1 2")
        engine._replies.expect_events("r7", inbox := Inbox())
        ((_, said),) = await inbox.take()
        assert isinstance(said, RequestError)

    with_engine(busy, busy=True)
    with_engine(bad)


def test_a_stop_that_crosses_the_last_words_is_no_failure() -> None:
    """The engine answers it with ERR unknown before the DONE that is on its way."""

    async def crossed(engine: EngineProcess) -> None:
        engine._replies.expect_events("r9", inbox := Inbox())
        engine._send("STOP r9")
        await engine.status()
        assert await inbox.take(0) == [] and "r9" in engine._replies.live
        engine.forget("r9")

    with_engine(crossed)


def test_waits_grow_up_to_the_longest() -> None:
    policy = RestartPolicy(first_wait_s=1.0, longest_wait_s=5.0)
    assert [policy.wait_s(n) for n in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 5.0]


def test_too_long_is_a_capacity_error() -> None:
    assert isinstance(refusal("too_long", "x"), CapacityError)
    assert type(refusal("failed", "x")) is EngineError
