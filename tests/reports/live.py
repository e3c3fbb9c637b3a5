"""The real server before the real engine, each in a process of its own; only the device is a fake one."""

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from server.harness import QUICK, Running, process_of, serving, sse
from strata.server.engine_process import RestartPolicy
from strata.server.settings import ServerSettings

ENGINE = Path(__file__).with_name("live_engine.py")
PATIENCE_S = 20.0
"""For what has to come."""


@contextlib.contextmanager
def live(
    settings: ServerSettings | None = None, policy: RestartPolicy = QUICK, wait: bool = True, **script: Any
) -> Iterator[Running]:
    """A server whose engine has a device that follows `script` (live_engine.py)."""
    engine = process_of([sys.executable, str(ENGINE), json.dumps(script)], policy)
    with serving(engine, settings, wait=wait) as up:
        yield up


def prompt(name: int, length: int = 8) -> list[int]:
    """Token ids of a prompt; the device counts by the first one, `name` (from 3)."""
    return [name, *((name * 7 + i * 5) % 500 + 3 for i in range(length - 1))]


def ask(up: Running, name: int, length: int = 8, max_tokens: int = 8, **fields: Any) -> httpx.Response:
    """One whole answer."""
    return up.http.post("/v1/completions", json=body(name, length, max_tokens, **fields))


def body(name: int, length: int = 8, max_tokens: int = 8, **fields: Any) -> dict[str, Any]:
    """The request."""
    return {"prompt": prompt(name, length), "max_tokens": max_tokens, "seed": 1, **fields}


def text_of(reply: httpx.Response) -> str:
    """The answer's text."""
    assert reply.status_code == 200, reply.text
    said: str = reply.json()["choices"][0]["text"]
    return said


def status(up: Running) -> dict[str, Any]:
    """`/v1/status`."""
    found: dict[str, Any] = up.http.get("/v1/status").json()
    return found


def device(up: Running) -> dict[str, Any]:
    """What the device counted."""
    found: dict[str, Any] = status(up)["engine"]["runner"]
    return found


def until(what: Callable[[], object]) -> None:
    """Wait for it; AssertionError when it does not come."""
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def idle(up: Running) -> bool:
    """Whether nothing is under way, on either side."""
    found = status(up)
    engine = found["engine"]
    return not (found["requests"] or engine["running"] or engine["reading"] or engine["waiting"])


def knock(up: Running, name: int, **fields: Any) -> socket.socket:
    """Send a request; closing the connection is leaving."""
    text = json.dumps(body(name, stream=True, **fields))
    connection = socket.create_connection(("127.0.0.1", up.port), timeout=10)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(text)}\r\n\r\n"
    connection.sendall((head + text).encode())
    return connection


class Stream:
    """A streaming request in a thread of its own."""

    def __init__(self, up: Running, name: int, length: int = 8, max_tokens: int = 8, **fields: Any) -> None:
        self.lines: list[str] = []
        self.status: int | None = None
        self._leave = threading.Event()
        self._url = f"{up.url}/v1/completions"
        self._body = body(name, length, max_tokens, stream=True, **fields)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with httpx.Client(timeout=60) as http, http.stream("POST", self._url, json=self._body) as reply:
            self.status = reply.status_code
            for line in reply.iter_lines():
                self.lines.append(line)
                if self._leave.is_set():
                    return

    @property
    def events(self) -> list[Any]:
        """What came so far."""
        return sse("\n".join(self.lines))

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(e["choices"][0]["text"] for e in self.events if isinstance(e, dict) and e.get("choices"))

    @property
    def error(self) -> dict[str, Any]:
        """What it was refused or cut off with; empty while nothing of the kind was said."""
        found = self.events or [json.loads("".join(self.lines) or "{}")]
        said: dict[str, Any] = {} if found[-1] == "[DONE]" else found[-1].get("error", {})
        return said

    @property
    def reason(self) -> str | None:
        """How it ended, if it did."""
        ends = [e["choices"][0]["finish_reason"] for e in self.events if isinstance(e, dict) and e.get("choices")]
        return next((end for end in ends if end), None)

    def leave(self, after: int = 0) -> None:
        """Close the connection with the next line, once the answer has `after` letters."""
        until(lambda: len(self.text) >= after)
        self._leave.set()
        self.join()

    def join(self) -> "Stream":
        """Wait for its end."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a stream without an end"
        return self
