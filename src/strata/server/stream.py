"""Server-sent events with keep-alive comments, and work that ends when its client leaves."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strata.core.errors import StrataError
from strata.server.errors import ApiError, as_api_error

T = TypeVar("T")
DONE = "data: [DONE]\n\n"
KEEP_ALIVE = ": keep-alive\n\n"


def data(value: dict[str, Any]) -> str:
    """One event."""
    return f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(',', ':'))}\n\n"


def named(value: dict[str, Any]) -> str:
    """One event that is named by its type, as Anthropic's and those of OpenAI's responses are."""
    return f"event: {value['type']}\n{data(value)}"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class ClientGoneError(Exception):
    """The client left before its answer."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; when the client leaves first, `work` is cancelled and ClientGoneError raised."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        for one in (task, watcher):
            one.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


class EventStream(Response):
    """Writes `chunks` as they come; an error after the start becomes an error event; silence becomes comments."""

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncGenerator[str, None],
        keep_alive_s: float,
        cleanup: Callable[[], Awaitable[None]],
        failed: Callable[[ApiError], str],
    ) -> None:
        """`cleanup` runs in any case, also when not one chunk was asked for; `failed` writes the event of an error."""
        self.status_code = 200
        self.background = None
        self._chunks = chunks
        self._keep_alive_s = keep_alive_s
        self._cleanup = cleanup
        self._failed = failed
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the last chunk, or until the client leaves."""
        try:
            await unless_gone(receive, self._write(send))
        except ClientGoneError:
            pass  # nobody is left to be told
        finally:
            await self._cleanup()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pending: asyncio.Task[str] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(_next(self._chunks))
                done, _ = await asyncio.wait({pending}, timeout=self._keep_alive_s)
                if not done:
                    await _send_text(send, KEEP_ALIVE)
                    continue
                task, pending = pending, None
                try:
                    text = task.result()
                except StopAsyncIteration:
                    break
                except StrataError as error:
                    await _send_text(send, self._failed(as_api_error(error)))
                    break
                except ApiError as error:
                    await _send_text(send, self._failed(error))
                    break
                except Exception:  # the client is told like of any other failure; what it was goes to the log
                    await _send_text(send, self._failed(ApiError(500, "internal error", code="internal")))
                    await _send_end(send)
                    raise
                await _send_text(send, text)
            await _send_end(send)
        finally:
            if pending is not None:
                pending.cancel()
                await asyncio.gather(pending, return_exceptions=True)
            await self._chunks.aclose()


async def _next(chunks: AsyncGenerator[str, None]) -> str:
    return await anext(chunks)


async def _send_end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_text(send: Send, text: str) -> None:
    if not text:
        return
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
