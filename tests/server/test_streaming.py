"""Lots of events: nothing waits, nothing is lost or reordered, and what is late comes in one piece."""

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.types import Message

from server.harness import fake_process, ids, models_of, sse
from strata.core.log import Log
from strata.engine.events import Event, Progress, Token
from strata.server.app import create_app
from strata.server.aside import SHORT, aside
from strata.server.child_lines import ChildLines
from strata.server.engine_process import EngineProcess, State
from strata.server.inbox import Inbox
from strata.server.settings import ServerSettings


def test_an_inbox_gives_all_that_came_in_order() -> None:
    async def run() -> None:
        inbox = Inbox()
        events: Sequence[Event] = [Token(1), Token(2), Progress(1, 2)]
        for number, event in enumerate(events):
            inbox.put(f"r{number % 2}", event)
        assert await inbox.take() == [("r0", Token(1)), ("r1", Token(2)), ("r0", Progress(1, 2))]
        assert await inbox.take(0.001) == [], "what was taken is gone"

    asyncio.run(run())


def test_an_inbox_wakes_its_reader_for_the_first_item() -> None:
    async def run() -> None:
        inbox = Inbox()
        reader = asyncio.create_task(inbox.take())
        await asyncio.sleep(0)
        assert not reader.done()
        inbox.put("r1", Token(7))
        assert await reader == [("r1", Token(7))]

    asyncio.run(run())


def lines_of(*pieces: bytes, longest: int = 100) -> list[list[bytes]]:
    """What ChildLines gives when a child writes `pieces` one by one."""

    async def run() -> list[list[bytes]]:
        stream = asyncio.StreamReader()
        child = ChildLines(stream, longest)
        found = []
        for piece in pieces:
            stream.feed_data(piece)
            if piece.endswith(b"\n"):
                found.append(await child.next())
        stream.feed_eof()
        while lines := await child.next():
            found.append(lines)
        return found

    return asyncio.run(run())


def test_lines_come_whole_however_they_were_cut() -> None:
    assert lines_of(b"one\ntw", b"o\nthree\n") == [[b"one", b"two", b"three"]]
    assert lines_of(b"one\n", b"two\n") == [[b"one"], [b"two"]]
    assert lines_of(b"one\n", b"the child was killed in") == [[b"one"], [b"the child was killed in"]]
    assert lines_of() == []


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_without_end_is_not_collected_for_ever(end: bytes) -> None:
    with pytest.raises(ValueError, match="a line of more than 100 bytes"):
        lines_of(b"x" * 101 + end)
    assert lines_of(b"x" * 100 + end) == [[b"x" * 100]]


def test_a_silent_child_is_noticed() -> None:
    async def run() -> None:
        with pytest.raises(TimeoutError):
            await ChildLines(asyncio.StreamReader()).next(0.01)

    asyncio.run(run())


TEXT = "abcdefghij" * 10


class SlowClient:
    """Takes the first write of an answer, and no other one until the engine has nothing to say any more."""

    def __init__(self, engine: EngineProcess, body: dict[str, Any]) -> None:
        self.engine = engine
        self.body = json.dumps(body).encode()
        self.asked = False
        self.writes: list[bytes] = []

    async def receive(self) -> Message:
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError("it never leaves")

    async def send(self, message: Message) -> None:
        self.writes.append(message.get("body", b""))
        while message["type"] == "http.response.body" and self.engine.running:
            await asyncio.sleep(0.005)


def test_what_a_slow_client_left_waiting_comes_in_one_write() -> None:
    async def run() -> list[bytes]:
        engine = fake_process(answers=[ids(TEXT)], token_s=0.001)
        app = create_app(models_of(engine), ServerSettings(), Log())
        headers = [(b"host", b"127.0.0.1")]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers, "query_string": b""}
        async with app.router.lifespan_context(app):
            await engine.wait_for(State.READY)
            client = SlowClient(engine, {"prompt": "x", "max_tokens": 100, "stream": True})
            await app(scope, client.receive, client.send)
        return client.writes

    writes = asyncio.run(run())
    events = sse(b"".join(writes).decode())
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == TEXT
    assert len(events) == len(ids(TEXT)) + 2, "an event for each token, one for the end, and [DONE]"
    assert len([write for write in writes if write]) == 2


def test_a_long_text_is_read_beside_the_loop_and_a_short_one_within_it() -> None:
    async def run() -> tuple[int, int]:
        return await aside(SHORT, threading.get_ident), await aside(SHORT + 1, threading.get_ident)

    short, long = asyncio.run(run())
    assert short == threading.get_ident() != long
