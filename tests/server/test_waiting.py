"""Deadlines, priorities and the queue's end, through HTTP: real server, real engine, a device that counts."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from reports.live import Stream, ask, body, device, idle, live, status, text_of, until
from server.harness import Running
from strata.server.settings import ServerSettings

pytestmark = pytest.mark.timeout(60)
PATH = "/v1/completions"


@pytest.fixture(scope="module")
def single() -> Iterator[Running]:
    with live(ServerSettings(keep_alive_s=0.05), slots=1, step_tokens=16, step_s=0.008, token_s=0.001) as up:
        yield up


@pytest.fixture
def busy(single: Running) -> Iterator[Running]:
    """Its only slot is taken."""
    stream = Stream(single, 10, max_tokens=480)
    until(lambda: stream.text)
    yield single
    stream.leave()
    until(lambda: idle(single))


def test_what_a_deadline_cuts_off_is_an_answer(single: Running) -> None:
    cut = ask(single, 11, max_tokens=480, deadline_s=0.8)
    choice = cut.json()["choices"][0]
    assert (cut.status_code, choice["finish_reason"], choice["stop_reason"]) == (200, "length", "deadline")
    assert 0 < len(choice["text"]) < 480
    assert choice["text"] == text_of(ask(single, 11, max_tokens=len(choice["text"])))
    assert cut.json()["usage"]["completion_tokens"] == len(choice["text"])
    stream = Stream(single, 11, max_tokens=480, deadline_s=0.8).join()
    assert (stream.status, stream.reason, stream.events[-1]) == (200, "length", "[DONE]")
    assert 0 < len(stream.text) < 480 and stream.text[:5] == choice["text"][:5]
    until(lambda: idle(single))
    assert "stop_reason" not in ask(single, 11).json()["choices"][0]


def test_a_chat_is_cut_off_likewise(single: Running) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 480, "deadline_s": 0.8}
    choice = single.http.post("/v1/chat/completions", json=chat).json()["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", "deadline")
    assert choice["message"]["content"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_deadline_in_the_queue_is_a_504_and_nothing_is_computed(busy: Running, stream: bool) -> None:
    reply = ask(busy, 20 + stream, deadline_s=0.1, stream=stream)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert "the deadline of 0.1 s has passed before the first token" in reply.json()["error"]["message"]
    assert str(20 + stream) not in device(busy)["seats"]


def test_a_stream_that_has_begun_says_it_in_an_event(busy: Running) -> None:
    stream = Stream(busy, 23, deadline_s=0.7).join()
    assert (stream.status, stream.error["code"], stream.reason) == (200, "deadline_exceeded", None)


def test_a_prompt_is_not_read_beyond_its_deadline(single: Running) -> None:
    reply = ask(single, 24, 400, 8, deadline_s=0.15)
    assert reply.status_code == 504
    until(lambda: idle(single))
    rows = device(single)["rows"]["24"]
    assert 0 < rows < 400
    assert text_of(ask(single, 25))
    assert device(single)["rows"]["24"] == rows
    assert status(single)["engine"]["tokens"]["prompt"] >= rows


def test_one_of_two_answers_in_time_is_an_answer(single: Running) -> None:
    began_s = time.monotonic()
    assert len(text_of(ask(single, 26, max_tokens=60))) == 60
    alone_s = time.monotonic() - began_s
    reply = ask(single, 26, max_tokens=60, n=2, deadline_s=1.5 * alone_s)
    first, second = sorted(reply.json()["choices"], key=lambda choice: -len(choice["text"]))
    assert len(first["text"]) == 60 and "stop_reason" not in first
    assert len(second["text"]) < 60 and second["stop_reason"] == "deadline"


def test_the_header_and_the_field_and_the_sooner_of_both(busy: Running) -> None:
    for field, header in ((None, "0.1"), (0.1, "50"), (50, "0.1")):
        fields = {} if field is None else {"deadline_s": field}
        reply = busy.http.post(PATH, json=body(27, **fields), headers={"X-Strata-Deadline-S": header})
        assert reply.status_code == 504


@pytest.mark.parametrize("value", [0, -1, "soon", True])
def test_a_deadline_that_cannot_be_is_refused_by_name(single: Running, value: Any) -> None:
    error = ask(single, 28, deadline_s=value)
    assert (error.status_code, error.json()["error"]["param"]) == (400, "deadline_s")
    headers = {"X-Strata-Deadline-S": str(value).replace("True", "nan")}
    error = single.http.post(PATH, json=body(28), headers=headers)
    assert (error.status_code, error.json()["error"]["param"]) == (400, "X-Strata-Deadline-S")


def test_requests_wait_by_priority(busy: Running) -> None:
    names = {31: 5, 32: 0, 33: -1}
    streams = {}
    for name, priority in names.items():
        streams[name] = Stream(busy, name, max_tokens=2, priority=priority)
        until(lambda: len(status(busy)["engine"]["queue"]) == len(streams))
    line = status(busy)["engine"]["queue"]
    assert [entry["priority"] for entry in line] == [-1, 0, 5]
    assert all(entry["prompt"] == 8 and entry["waited_s"] >= 0 for entry in line)
    wrong = ask(busy, 34, priority="high")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "priority")
    for stream in streams.values():
        stream.leave()


def test_a_full_queue_sends_clients_away_for_a_while() -> None:
    settings = ServerSettings(keep_alive_s=0.05)
    with live(settings, slots=1, step_s=0.01, scheduler={"queue_limit": 1}) as up, httpx.Client(timeout=20) as http:
        began_s = time.monotonic()
        assert text_of(ask(up, 44)) and text_of(ask(up, 45))
        first = Stream(up, 41, max_tokens=400)
        until(lambda: first.text)
        second = Stream(up, 42, max_tokens=2)
        until(lambda: status(up)["engine"]["waiting"] == 1)
        for stream in (False, True):
            reply = http.post(up.url + PATH, json=body(43, stream=stream))
            assert (reply.status_code, reply.json()["error"]["code"]) == (429, "queue_full")
            after_s, passed_s = int(reply.headers["retry-after"]), time.monotonic() - began_s
            # Two requests ended, so the rate is one in at most the time that has passed; two clients are sent away.
            assert 1 <= after_s <= 2 * passed_s + 1
            assert "1 requests wait already (at most 1 may)" in reply.json()["error"]["message"]
        first.leave()
        assert len(second.join().text) == 2
        assert text_of(ask(up, 43))
        assert status(up)["engine"]["sessions"]["refused"] == 2
