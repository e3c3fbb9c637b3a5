"""Reports of several clients at once, through HTTP: who leaves, who waits, who is told what."""

import dataclasses
import itertools
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from reports.live import Stream, ask, body, device, idle, knock, live, prompt, status, text_of, until
from server.harness import QUICK, Running
from strata.chat.events import Event
from strata.chat.reader import AnswerReader
from strata.engine.events import Token
from strata.server.engine_child import Patience
from strata.server.engine_process import State
from strata.server.settings import ServerSettings

pytestmark = pytest.mark.timeout(60)
CHATTY = ServerSettings(keep_alive_s=0.05)
"""Comments come often, so that a client that leaves on the next line leaves at once."""


@pytest.fixture(scope="module")
def single() -> Iterator[Running]:
    """One slot: whoever comes second waits."""
    with live(CHATTY, slots=1, step_s=0.005) as up:
        yield up


@pytest.fixture(scope="module")
def double() -> Iterator[Running]:
    with live(CHATTY, slots=2, draft_depth=2, step_s=0.005) as up:
        yield up


def rows(up: Running, name: int) -> int:
    """Rows computed for the prompt that begins with `name`."""
    count: int = device(up)["rows"].get(str(name), 0)
    return count


def cancelled(up: Running) -> int:
    """Requests that ended because their clients left."""
    count: int = status(up)["engine"]["sessions"]["finished"].get("cancel", 0)
    return count


def test_one_that_left_the_queue_is_never_begun(single: Running) -> None:
    """O-030: cancelled while it waited, and dispatched all the same."""
    first = Stream(single, 11, max_tokens=400)
    until(lambda: first.text)
    second = knock(single, 12)
    until(lambda: status(single)["engine"]["waiting"] == 1)
    second.close()
    until(lambda: status(single)["engine"]["waiting"] == 0)
    first.leave()
    until(lambda: idle(single))
    assert "12" not in device(single)["seats"]
    assert device(single)["seats"]["11"] == 1
    assert text_of(ask(single, 13))


def test_a_read_whose_client_left_is_not_read_to_its_end() -> None:
    """O-030: a cancel while the prompt is read is only seen when decoding."""
    with live(CHATTY, slots=1, step_tokens=16, token_s=0.002) as up:
        stream = Stream(up, 21, 400, 50)
        until(lambda: rows(up, 21) > 40)
        stream.leave()
        until(lambda: idle(up))
        left = rows(up, 21)
        assert left < 300
        assert text_of(ask(up, 22))
        assert rows(up, 21) == left


def test_one_that_left_the_queue_does_not_end_the_one_that_runs(single: Running) -> None:
    """O-067: cancelling a waiting request aborts the running one of another client."""
    solo = text_of(ask(single, 31, max_tokens=200))
    before = cancelled(single)
    for _ in range(2):
        first = Stream(single, 31, max_tokens=200)
        until(lambda: status(single)["engine"]["running"])
        second = knock(single, 32, max_tokens=400)
        until(lambda: status(single)["requests"] == 2)
        second.close()
        assert (first.join().text, first.reason) == (solo, "length")
    until(lambda: idle(single))
    assert cancelled(single) == before + 2


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_leaves_frees_its_slot(double: Running, streams: bool) -> None:
    """O-066: the client goes away, and its answer is made to the end of the context. O-025: the same with drafts."""
    name = 41 + streams
    for _ in range(6):
        if streams:
            Stream(double, name, max_tokens=480).leave(after=5)
        else:
            with pytest.raises(Exception, match="timed out"):
                double.http.post("/v1/completions", json={"prompt": prompt(name), "max_tokens": 480}, timeout=0.1)
        until(lambda: idle(double))
    made = rows(double, name)
    assert made < 6 * 300
    assert text_of(ask(double, 43))
    assert rows(double, name) == made
    assert {seat["state"] for seat in double.http.get("/slots").json()} == {"idle"}


def test_whoever_waits_when_the_engine_dies_is_told_and_nothing_is_taken_up_again(double: Running) -> None:
    """O-031: a request waits while the model's process is replaced, and goes on in the new one."""
    streams = [Stream(double, 50 + i, max_tokens=480) for i in range(5)]
    until(lambda: status(double)["engine"]["waiting"] == 3)
    pid = double.engine.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    for stream in streams:
        assert stream.join().error["code"] == "engine_unavailable"
        assert stream.reason is None
    double.until(State.READY)
    assert text_of(ask(double, 60))
    assert device(double)["seats"] == {"60": 1}
    assert status(double)["restarts"] == 1


FAULTS = [
    ({"hang_at": 12, "stall_s": 0.5}, "a step has not returned"),
    ({"die_at": 12}, "the engine's loop failed: SystemExit"),
    ({"freeze_at": 12}, "the engine said nothing for 1 s"),
]


@pytest.mark.parametrize(("script", "words"), FAULTS)
def test_an_engine_that_hangs_is_not_healthy_and_is_started_again(script: dict[str, Any], words: str) -> None:
    """O-034: health is fine while every request hangs."""
    policy = dataclasses.replace(QUICK, first_wait_s=0.5, patience=Patience(silence_s=1.0))
    with live(CHATTY, policy, slots=1, **script) as up:
        streams = [Stream(up, 71 + i, max_tokens=100) for i in range(3)]
        until(lambda: up.http.get("/health").status_code == 503)
        sick = up.http.get("/health")
        assert sick.headers["retry-after"] and words in sick.json()["reason"]
        for stream in streams:
            assert words in stream.join().error["message"]
        up.until(State.READY)
        assert up.http.get("/health").status_code == 200
        assert text_of(ask(up, 74, max_tokens=4))


def test_a_request_that_fails_does_not_end_the_others() -> None:
    """O-037: an internal error in one request ends them all. O-068: an error after the first byte looks like an end."""
    with live(CHATTY, slots=4, poisoned=[84], step_s=0.004) as up:
        solo = [text_of(ask(up, 81 + i, max_tokens=50)) for i in range(3)]
        streams = [Stream(up, 81 + i, max_tokens=50) for i in range(3)]
        until(lambda: all(stream.text for stream in streams))
        bad = Stream(up, 84, 40, 50)
        assert "told to fail" in bad.join().error["message"]
        assert bad.reason is None
        reply = ask(up, 84)
        assert reply.status_code == 500 and "told to fail" in reply.json()["error"]["message"]
        assert [stream.join().text for stream in streams] == solo
        assert {stream.reason for stream in streams} == {"length"}
        counts = status(up)["engine"]
        assert (counts["failed_steps"], counts["sessions"]["finished"]["error"]) == (0, 2)
        assert up.engine.restarts == 0


def test_what_fails_on_the_way_to_the_client_is_told(double: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-037: the same for a failure behind the engine. O-068: the stream says so in a form that clients read."""

    whole, said = AnswerReader.push, itertools.count(1)

    def push(reader: AnswerReader, token: Token) -> list[Event]:
        if next(said) % 6 == 0:
            raise ValueError("planted")
        return whole(reader, token)

    monkeypatch.setattr(AnswerReader, "push", push)
    error = {"message": "internal error", "type": "server_error", "param": None, "code": "internal"}
    assert Stream(double, 91, max_tokens=20).join().error == error
    reply = httpx.post(f"{double.url}/v1/completions", json=body(91))
    assert (reply.status_code, reply.json()["error"]) == (500, error)
    monkeypatch.undo()
    until(lambda: idle(double))
    assert text_of(ask(double, 92))
