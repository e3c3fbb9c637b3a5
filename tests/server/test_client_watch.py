"""Work that ends with its client, and nothing else that does."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from starlette.types import Message

from strata.server.client_watch import ClientGoneError, ClientWatch


class Line:
    """An ASGI connection that says what it is told to."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[str] = asyncio.Queue()

    async def receive(self) -> Message:
        return {"type": await self.said.get()}


async def watched(line: Line, work: Coroutine[Any, Any, str]) -> str:
    with ClientWatch(line.receive):
        return await work


async def long() -> str:
    await asyncio.sleep(30)
    return "done"


def test_work_ends_when_the_client_leaves_and_not_before() -> None:
    async def run() -> None:
        line = Line()
        task = asyncio.create_task(watched(line, long()))
        line.said.put_nowait("http.request")
        await asyncio.sleep(0.01)
        assert not task.done(), "more of a body is not the end of a client"
        line.said.put_nowait("http.disconnect")
        with pytest.raises(ClientGoneError):
            await task
        assert not task.cancelled()
        assert not task.cancelling(), "the task can go on"

    asyncio.run(run())


def test_what_is_done_or_has_failed_stays_so() -> None:
    async def fails() -> str:
        raise KeyError("mine")

    async def run() -> None:
        line = Line()
        assert await watched(line, asyncio.sleep(0, "done")) == "done"
        with pytest.raises(KeyError, match="mine"):
            await watched(line, fails())
        line.said.put_nowait("http.disconnect")
        await asyncio.sleep(0.01)
        assert line.said.qsize() == 1, "nobody listens any more"

    asyncio.run(run())


def test_a_cancellation_by_somebody_else_is_no_leaving_client() -> None:
    async def run() -> None:
        line = Line()
        task = asyncio.create_task(watched(line, long()))
        await asyncio.sleep(0.01)
        task.cancel()
        line.said.put_nowait("http.disconnect")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(run())
