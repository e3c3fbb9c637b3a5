"""Answers as a stream with keep-alive comments."""

from contextlib import ExitStack, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strata.core.errors import StrataError
from strata.server.answers import Lot
from strata.server.client_watch import ClientGoneError
from strata.server.coming import Coming
from strata.server.dialect import Writer
from strata.server.errors import ApiError, as_api_error
from strata.server.sse import KEEP_ALIVE


class EventStream(Response):
    """Writes answers as they come; an error after the start becomes an error event; silence becomes comments."""

    media_type = "text/event-stream"

    def __init__(self, answers: Coming, first: Lot, writer: Writer, keep_alive_s: float, held: ExitStack) -> None:
        """`first` was taken from `answers` already; `held` is closed at the end, however it comes."""
        self.status_code = 200
        self.background = None
        self._answers = answers
        self._first = first
        self._writer = writer
        self._keep_alive_s = keep_alive_s
        self._held = held
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the last event, or until the client leaves."""
        with suppress(ClientGoneError), self._held:  # nobody is left to be told
            await self._write(send)

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await self._write_answers(send)
        except StrataError as error:
            await self._write_last(send, as_api_error(error))
        except ApiError as error:
            await self._write_last(send, error)
        except Exception:  # the client is told like of any other failure; what it was goes to the log
            await self._write_last(send, ApiError(500, "internal error", code="internal"))
            raise

    async def _write_answers(self, send: Send) -> None:
        """One write for everything that has come: `send` waits while the client does not read, and then it is more."""
        answers, writer = self._answers, self._writer
        text = writer.begin(answers.count) + self._said(self._first)
        while not answers.over:
            if text:
                await send({"type": "http.response.body", "body": text, "more_body": True})
            lot = await answers.next(self._keep_alive_s)
            text = self._said(lot) if lot else KEEP_ALIVE
        await send({"type": "http.response.body", "body": text + writer.end(), "more_body": False})

    def _said(self, lot: Lot) -> bytes:
        return b"".join(self._writer.event(number, event) for number, event in lot)

    async def _write_last(self, send: Send, error: ApiError) -> None:
        await send({"type": "http.response.body", "body": self._writer.failed(error), "more_body": False})
