"""Listening: a socket taken before anything else is started, and an end in order."""

import signal
import socket
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from strata.core.errors import UsageError
from strata.server.engine_process import EngineProcess
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
    """Serves `app`; at the end the engine goes first, so that open answers are told before they are cut."""

    def __init__(self, app: Starlette, engine: EngineProcess) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=GRACE_S,
                server_header=False,
            )
        )
        self._engine = engine
        self.interrupted = False
        """SIGINT was the reason to end."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A first signal ends in order, a second SIGINT at once."""
        self.interrupted = self.interrupted or sig == signal.SIGINT
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the engine, then the connections."""
        await self._engine.stop()
        await super().shutdown(sockets)
