"""A name for every request, and a line in the log when it is over: who, how much, how long, how it ended; no text."""

import re
import time
import uuid
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strata.core.log import Level, Log
from strata.engine.events import Finished
from strata.server.errors import ANTHROPIC_PATH

HEADER = "X-Request-Id"
ANTHROPIC_HEADER = "Request-Id"
_KEY = "strata.record"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@dataclass(slots=True)
class Record:
    """What is known of one request."""

    id: str
    began_s: float = field(default_factory=time.perf_counter)
    told: bool = False
    """Its line is for everybody, not for debugging only."""
    model: str = ""
    stream: bool = False
    ids: list[str] = field(default_factory=list)
    """Of its answers, as the engine's lines name them."""
    ends: list[str] = field(default_factory=list)
    """How each of its answers ended."""
    counts: list[Finished] = field(default_factory=list)
    first_s: float | None = None
    """From its arrival to its first token."""
    code: str = ""
    """Of the error that it got."""

    def token(self) -> None:
        """A token came."""
        if self.first_s is None:
            self.first_s = time.perf_counter() - self.began_s

    def ended(self, reason: str, counts: Finished | None) -> None:
        """One of its answers is over."""
        self.ends.append(reason)
        if counts is not None:
            self.counts.append(counts)

    def fields(self, status: int) -> dict[str, object]:
        """Its line; `status` 0: the client left before it got one."""
        found: dict[str, object] = {"id": self.id, "status": status}
        if self.model:
            found |= {"model": self.model, "stream": self.stream, "answers": ",".join(self.ids)}
        if self.counts:
            found |= {
                "prompt": sum(one.prompt for one in self.counts),
                "cached": sum(one.reused for one in self.counts),
                "generated": sum(one.generated for one in self.counts),
                "queue_ms": _ms(max(one.queue_s for one in self.counts)),
                "read_ms": _ms(max(one.prompt_s for one in self.counts)),
                "decode_ms": _ms(max(one.decode_s for one in self.counts)),
            }
        if self.first_s is not None:
            found["first_ms"] = _ms(self.first_s)
        found["total_ms"] = _ms(time.perf_counter() - self.began_s)
        found["outcome"] = self.code or ",".join(dict.fromkeys(self.ends)) or ("gone" if not status else "done")
        return found


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


def record_of(scope: MutableMapping[str, Any]) -> Record:
    """The record of a request."""
    found: Record = scope[_KEY]
    return found


def name_of(scope: Scope) -> str:
    """The name that a proxy or client gave the request, where it can stand in a log; else a new one."""
    for name, value in scope["headers"]:
        if name == HEADER.lower().encode():
            given: str = value.decode("latin-1")
            if _NAME.fullmatch(given):
                return given
    return f"req_{uuid.uuid4().hex}"


class RequestLog:
    """ASGI middleware, around everything else."""

    def __init__(self, app: ASGIApp, log: Log) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and tell of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = scope[_KEY] = Record(name_of(scope))
        names = [HEADER] if not scope["path"].startswith(ANTHROPIC_PATH) else [HEADER, ANTHROPIC_HEADER]
        headers = [(name.lower().encode(), record.id.encode()) for name in names]
        status = 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except Exception:
            status, record.code = status or 500, "internal"
            raise
        finally:
            level = Level.INFO if record.told else Level.DEBUG
            self._log.write(level, "request", path=scope["path"], **record.fields(status))
