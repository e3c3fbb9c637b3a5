"""Listening: a socket taken before anything else is started, and an end in order."""

import asyncio
import contextlib
import signal
import socket
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from strata.core.errors import UsageError
from strata.core.log import Log
from strata.server.http_protocol import HttpProtocol
from strata.server.models import Models
from strata.server.settings import ServerSettings

BACKLOG = 2048
GRACE_S = 3
"""For open answers to write their last words."""


def take_socket(settings: ServerSettings) -> socket.socket:
    """The bound socket; UsageError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With TCP named, asyncio sends small writes at once; without, an answer's second write waits 40 ms for an ACK.
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((settings.host, settings.port))
    except OSError as error:
        taken.close()
        raise UsageError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}",
            hint="choose another with --port (0 = a free one)",
        ) from error
    return taken


def url_of(taken: socket.socket) -> str:
    """Where the socket is reached."""
    host, port = taken.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Listener(uvicorn.Server):
    """Serves `app`. At the end the engine goes first, so that open answers are told before they are cut.

    SIGTERM lets what runs come to its end for `drain_s`, while new requests are sent away; another signal, or SIGINT,
    does not wait.
    """

    def __init__(self, app: Starlette, models: Models, log: Log, drain_s: float = 0.0) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpProtocol,
                log_level="error",
                access_log=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=GRACE_S,
                server_header=False,
            )
        )
        self._models = models
        self._log = log
        self._drain_s = drain_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._signals = 0
        self.interrupted = False
        """SIGINT was the reason to end."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A first SIGTERM drains, a first SIGINT or a second signal ends in order, one more SIGINT at once."""
        self._signals += 1
        self.interrupted = self.interrupted or sig == signal.SIGINT
        if self._signals == 1 and sig == signal.SIGTERM and self._loop is not None:
            self._loop.call_soon_threadsafe(self.drain)
            return
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    def drain(self) -> None:
        """Send new requests away, and end when what runs has ended, or after `drain_s`."""
        self._models.close()
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        engine = self._models.engine
        if engine is not None and engine.running:
            self._log.info("draining", requests=engine.running, seconds=self._drain_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                await self._models.drained()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the engine, then the connections."""
        await self._models.stop()
        await super().shutdown(sockets)
