"""One engine process from its start to its end: lines to it, messages from it; never a zombie."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from strata.core.errors import RequestError
from strata.core.log import Log
from strata.engine.protocol import Message, Ready, parse_event
from strata.server.child_lines import ChildLines


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a child is waited for."""

    stop_s: float = 3.0
    """After it was told to quit, before it is killed."""
    silence_s: float = 660.0
    """After which a child that says nothing, not even to a STAT half as long before, is taken for frozen."""


class EngineChild:
    """A child process that speaks the line protocol."""

    def __init__(self, process: asyncio.subprocess.Process, log: Log, patience: Patience) -> None:
        assert process.stdout is not None
        self.process = process
        self.complaint = ""
        """Why it had to be ended."""
        self._lines = ChildLines(process.stdout)
        self._log = log
        self._patience = patience
        self._answers = False
        """It was READY: from then on it answers a STAT at once."""

    @classmethod
    async def start(cls, command: Sequence[str], log: Log, patience: Patience) -> "EngineChild":
        """OSError when it cannot be started."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal is for the server, which ends the child in order
        )
        return cls(process, log, patience)

    def send(self, line: str) -> None:
        """Write a line, unless the child reads none any more."""
        stdin = self.process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(f"{line}\n".encode())

    async def messages(self) -> AsyncGenerator[Message, None]:
        """What it says, until it ends or has to be ended."""
        try:
            while lines := await self._next():
                for line in lines:
                    message = self._parsed(line)
                    self._answers = self._answers or isinstance(message, Ready)
                    if message is not None:
                        yield message
        except ValueError as error:
            self.complaint = f"the engine wrote {error}"
        except TimeoutError:
            self.complaint = f"the engine said nothing for {self._patience.silence_s:g} s"
            self.kill()

    async def _next(self) -> list[bytes]:
        """Its next lines; TimeoutError when it says nothing for too long, though it was asked."""
        if not self._answers:
            return await self._lines.next()
        half_s = self._patience.silence_s / 2
        with contextlib.suppress(TimeoutError):
            return await self._lines.next(half_s)
        self.send("STAT")
        return await self._lines.next(half_s)

    def _parsed(self, line: bytes) -> Message | None:
        """What a line says; None, and a word in the log, for one that no engine writes."""
        try:
            return parse_event(line.decode(errors="replace"))
        except RequestError as error:
            self._log.warning("engine line ignored", reason=error.message)
            return None

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def end(self, wait_s: float = 0.0) -> int:
        """Close the pipe, wait, kill: afterwards the child is gone for certain -> its exit code.

        `wait_s` is what it is given beyond the usual, to finish what it does.
        """
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), self._patience.stop_s + wait_s)
        except TimeoutError:
            self.kill()
        return await self.process.wait()
