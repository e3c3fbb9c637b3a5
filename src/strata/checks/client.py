"""A client of a completions server: one request at a time, streamed, timed, and left early where that is wanted."""

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from strata.core.errors import StrataError

TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    prompt: str
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = True
    leave_after: int | None = None
    """Pieces of the answer after which the client leaves; 0: it leaves `leave_s` after asking. None: it stays."""
    leave_s: float = 0.0

    def body(self) -> bytes:
        """JSON for /v1/completions."""
        fields = {"prompt": self.prompt, "max_tokens": self.max_tokens, "temperature": self.temperature}
        drawn = {"seed": self.seed} if self.temperature else {}
        streamed = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": self.ignore_eos}
        return json.dumps({**fields, **drawn, **streamed}).encode()


@dataclass(slots=True)
class Got:
    """What came back."""

    asked_s: float
    status: int = 0
    text: str = ""
    finish: str = ""
    """Why the answer ended; "" when it did not."""
    times_s: list[float] = field(default_factory=list)
    """When each piece of text came; seconds of time.perf_counter."""
    prompt: int = 0
    reused: int = 0
    tokens: int = 0
    """Answer tokens, as the server counted them."""
    left: bool = False
    """Whether the client left."""
    error: str = ""

    @property
    def first_s(self) -> float:
        """Seconds to the first piece."""
        return self.times_s[0] - self.asked_s if self.times_s else float("inf")


class Client:
    """Talks to one server; each request has a connection of its own."""

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 300.0) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise StrataError(f"{url}: expected http://HOST:PORT")
        self.host, self.port = parts.hostname, parts.port or 80
        self.headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.timeout_s = timeout_s

    def get(self, path: str) -> Mapping[str, Any] | None:
        """The JSON object at `path`; None where there is none."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)
        try:
            connection.request("GET", path, headers=self.headers)
            answer = connection.getresponse()
            found = json.loads(answer.read()) if answer.status == http.client.OK else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise StrataError(f"GET {path}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()
        return found if isinstance(found, dict) else None

    def complete(self, ask: Ask) -> Got:
        """One request; whatever goes wrong is in `Got.error`."""
        got = Got(time.perf_counter())
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)
        try:
            connection.request("POST", "/v1/completions", ask.body(), self.headers)
            if ask.leave_after == 0:
                time.sleep(ask.leave_s)
                leave(connection, got)
                return got
            answer = connection.getresponse()
            got.status = answer.status
            if answer.status != http.client.OK:
                got.error = f"status {answer.status}: {answer.read(300).decode(errors='replace')}"
                return got
            for event in events(answer):
                take(event, got)
                if ask.leave_after is not None and len(got.times_s) >= ask.leave_after:
                    leave(connection, got)
                    break
        except (OSError, http.client.HTTPException, ValueError) as error:
            got.error = f"{type(error).__name__}: {error}"
        finally:
            connection.close()
        return got


def leave(connection: http.client.HTTPConnection, got: Got) -> None:
    """Go without a word, as a client does that was closed."""
    if connection.sock is not None:
        connection.sock.shutdown(socket.SHUT_RDWR)
    got.left = True


def events(answer: http.client.HTTPResponse) -> Iterator[Mapping[str, Any]]:
    """The objects of a stream of server-sent events."""
    for line in answer:
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            found = json.loads(line[len(b"data: ") :])
            if isinstance(found, dict):
                yield found


def take(event: Mapping[str, Any], got: Got) -> None:
    """One event of an answer."""
    if "error" in event:
        got.error = str(event["error"])[:300]
        return
    for choice in event.get("choices") or ():
        if choice.get("text"):
            got.text += choice["text"]
            got.times_s.append(time.perf_counter())
        got.finish = choice.get("finish_reason") or got.finish
    if usage := event.get("usage"):
        got.prompt, got.tokens = usage["prompt_tokens"], usage["completion_tokens"]
        got.reused = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
