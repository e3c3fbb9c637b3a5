"""The engine as a child process behind the line protocol: start, demultiplex, restart, end; never a zombie."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from strata.core.errors import CapacityError, EngineError, RequestError
from strata.core.log import Log
from strata.engine.events import Finished
from strata.engine.protocol import (
    BAD_REQUEST,
    BUSY,
    TOO_LONG,
    UNKNOWN,
    UNSUPPORTED,
    Error,
    Experts,
    Fatal,
    Info,
    Kept,
    Message,
    Of,
    Ready,
    Status,
    format_gen,
    parse_event,
)
from strata.engine.request import QueueFullError, Request
from strata.server.child_lines import ChildLines
from strata.server.departures import Departures
from strata.server.inbox import Inbox

T = TypeVar("T")


class State(StrEnum):
    """Where the engine process stands."""

    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


class EngineAwayError(EngineError):
    """Loading, restarting or gone: no request can be taken right now."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a crashed engine is started again."""

    limit: int = 5
    """Crashes in a row before giving up; one that ran for `healthy_s` starts the count anew."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 15.0
    healthy_s: float = 60.0
    stop_wait_s: float = 3.0
    """For a child told to quit, before it is killed."""
    silence_s: float = 660.0
    """After which a child that says nothing, not even to a STAT half as long before, is taken for frozen."""

    def wait_s(self, crashes: int) -> float:
        """Pause before start number `crashes` + 1."""
        return float(min(self.first_wait_s * 2 ** (crashes - 1), self.longest_wait_s))


class EngineProcess:
    """One engine child at a time. All methods belong to the event loop's thread."""

    def __init__(self, command: Sequence[str], log: Log, policy: RestartPolicy | None = None) -> None:
        self.command = tuple(command)
        self.state = State.LOADING
        self.reason = "the model is loading"
        """Why it is not ready, or the last crash."""
        self.ready: Ready | None = None
        self.info: dict[str, str] = {}
        """Facts from INFO lines."""
        self.restarts = 0
        self.exit_code: int | None = None
        """Of the last child that ended."""
        self._words = ""
        self._log = log
        self._policy = policy or RestartPolicy()
        self._child: asyncio.subprocess.Process | None = None
        self._live: dict[str, Inbox] = {}
        """Where the events of a request go, by its id."""
        self._asked: list[asyncio.Future[Mapping[str, Any]]] = []
        self._departures = Departures()
        self._ordered: dict[str, list[asyncio.Future[Mapping[str, Any]]]] = {"vram": [], "experts": []}
        """Who waits for the answer to an order, by its verb."""
        self._numbers = itertools.count(1)
        self._changed = asyncio.Condition()
        self._stopping = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the child and watch over it."""
        self._supervisor = asyncio.create_task(self._supervise())

    async def wait_for(self, *states: State) -> State:
        """Wait, without limit, until the engine is in one of `states`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.state in states)
        return self.state

    async def stop(self) -> None:
        """End the child and everything under way; may be called more than once."""
        self._stopping.set()
        if self._supervisor is not None:
            await self._supervisor

    @property
    def running(self) -> int:
        """Requests under way."""
        return len(self._live)

    def new_id(self) -> str:
        """A request id that was not used before."""
        return f"r{next(self._numbers)}"

    def submit(self, request: Request, inbox: Inbox) -> None:
        """Send `request`, whose events go to `inbox` up to Finished or an error; EngineAwayError without an engine."""
        self.require_ready()
        self._live[request.id] = inbox
        self._send(format_gen(request))

    def cancel(self, request_id: str) -> None:
        """Ask for a request's end; Finished still comes."""
        if request_id in self._live and self.state is State.READY:
            self._send(f"STOP {request_id}")

    def forget(self, request_id: str) -> None:
        """Ask for a request's end without waiting for it."""
        self.cancel(request_id)
        self._live.pop(request_id, None)

    async def status(self) -> Mapping[str, Any]:
        """The engine's own status."""
        self.require_ready()
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self._send("STAT")
        return await answer

    async def resize(self, mib: int) -> Mapping[str, int]:
        """Let experts take up to so much VRAM -> what they take. RequestError: they cannot."""
        return await self._order("vram", f"VRAM {mib}")

    async def experts(self) -> Mapping[str, Any]:
        """Where every expert is, and how much each is used: `ExpertMap.values`."""
        return await self._order("experts", "EXPERTS")

    async def _order(self, verb: str, line: str) -> Mapping[str, Any]:
        self.require_ready()
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._ordered[verb].append(answer)
        self._send(line)
        return await answer

    def require_ready(self) -> Ready:
        """What READY said; EngineAwayError while there is no engine."""
        if self.state is not State.READY or self.ready is None:
            raise EngineAwayError(f"the engine is not ready: {self.reason}", hint="try again in a moment")
        return self.ready

    def _send(self, line: str) -> None:
        child = self._child
        if child is not None and child.stdin is not None and not child.stdin.is_closing():
            child.stdin.write(f"{line}\n".encode())

    async def _set(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason
        async with self._changed:
            self._changed.notify_all()

    async def _supervise(self) -> None:
        crashes = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            was_ready = await self._run_once()
            if self._stopping.is_set():
                break
            if self.ready is None:
                # It never came up: the same command would fail the same way.
                await self._set(State.FAILED, self._last_words())
                return
            crashes = 1 if was_ready and time.monotonic() - started > self._policy.healthy_s else crashes + 1
            if crashes > self._policy.limit:
                await self._set(State.FAILED, f"{self._last_words()}; it failed {crashes} times in a row")
                return
            self.restarts += 1
            wait_s = self._policy.wait_s(crashes)
            self._log.warning("engine restart", number=self.restarts, wait_s=wait_s, reason=self._last_words())
            await self._set(State.RESTARTING, self._last_words())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), wait_s)
        await self._set(State.STOPPED, "the server is shutting down")

    def _last_words(self) -> str:
        return self._words or f"the engine ended with exit code {self.exit_code}"

    async def _run_once(self) -> bool:
        """One child from start to end; True when it had become ready."""
        self._words = ""
        try:
            child = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                process_group=0,  # Ctrl-C in a terminal is for the server, which ends the child in order
            )
        except OSError as error:
            self._words = f"the engine cannot be started: {error}"
            return False
        self._child = child
        stopper = asyncio.create_task(self._end_when_stopping(child))
        try:
            was_ready = await self._read(child)
        finally:
            stopper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stopper
            await self._reap(child)
            self._child = None
            self._fail_all()
        return was_ready

    async def _end_when_stopping(self, child: asyncio.subprocess.Process) -> None:
        await self._stopping.wait()
        loading = self.state is not State.READY
        self._fail_all()
        if loading:
            child.kill()  # it reads no line before the model is loaded, and has nothing to finish
            return
        self._send("QUIT")
        if child.stdin is not None:
            child.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), self._policy.stop_wait_s)
        if child.returncode is None:
            child.kill()

    async def _reap(self, child: asyncio.subprocess.Process) -> None:
        """Close the pipe, wait a little, kill: afterwards the child is gone for certain."""
        if child.stdin is not None:
            child.stdin.close()
        try:
            await asyncio.wait_for(child.wait(), self._policy.stop_wait_s)
        except TimeoutError:
            child.kill()
        self.exit_code = await child.wait()

    async def _read(self, child: asyncio.subprocess.Process) -> bool:
        """Hand out the child's lines until it ends or says FATAL."""
        was_ready = False
        assert child.stdout is not None
        child_lines = ChildLines(child.stdout)
        while True:
            try:
                lines = await self._lines(child_lines, was_ready)
            except ValueError as error:
                self._words = f"the engine wrote {error}"
                return was_ready
            except TimeoutError:
                self._words = f"the engine said nothing for {self._policy.silence_s:g} s"
                child.kill()
                return was_ready
            if not lines:
                return was_ready
            for line in lines:
                message = self._parsed(line)
                if isinstance(message, Fatal):
                    self._words = f"the engine failed: {message.text}"
                    return was_ready
                if isinstance(message, Ready):
                    was_ready = True
                    self.ready = message
                    await self._set(State.READY, "")
                if message is not None:
                    self._take(message)

    async def _lines(self, child_lines: ChildLines, limited: bool) -> list[bytes]:
        """The child's next lines; TimeoutError when it says nothing for too long, though it was asked."""
        if not limited:
            return await child_lines.next()
        half_s = self._policy.silence_s / 2
        with contextlib.suppress(TimeoutError):
            return await child_lines.next(half_s)
        self._send("STAT")
        return await child_lines.next(half_s)

    def _parsed(self, line: bytes) -> Message | None:
        """What a line says; None, and a word in the log, for one that no engine writes."""
        try:
            return parse_event(line.decode(errors="replace"))
        except RequestError as error:
            self._log.warning("engine line ignored", reason=error.message)
            return None

    def _take(self, message: Message) -> None:
        self._note_departure(message)
        match message:
            case Info(fields):
                self.info |= fields
            case Of(name, event) if name in self._live:
                self._live[name].put(name, event)
                if isinstance(event, Finished):
                    del self._live[name]
            # Unknown is a request whose STOP crossed its last words: they follow.
            case Error(name, code, text) if name in self._live and code != UNKNOWN:
                self._live.pop(name).put(name, self._refusal(code, text))
            case Kept(verb, counts) if self._ordered.get(verb):
                settle(self._ordered[verb].pop(0), counts)
            case Experts(values) if self._ordered["experts"]:
                settle(self._ordered["experts"].pop(0), values)
            case Error("-", code, text) if self._ordered.get(text.partition(": ")[0]):
                verb, _, why = text.partition(": ")
                settle(self._ordered[verb].pop(0), refusal(code, why))
            case Error("-", code, text):
                self._log.warning("engine refused a line", code=code, reason=text)
            case Status(values) if self._asked:
                settle(self._asked.pop(0), values)
            case _:
                pass  # events of a request that nobody waits for any more

    def _note_departure(self, message: Message) -> None:
        if isinstance(message, Of) and isinstance(message.event, Finished):
            self._departures.left(time.monotonic())

    def _refusal(self, code: str, text: str) -> Exception:
        found = refusal(code, text)
        if isinstance(found, QueueFullError):
            found.after_s = self._departures.wait_s(time.monotonic())
        return found

    def _fail_all(self) -> None:
        """Tell everybody who waits that the engine is gone."""
        if self.state is State.READY:
            self.state = State.RESTARTING
            self.reason = self._last_words()
        why = "the server is shutting down" if self._stopping.is_set() else self._last_words()
        waiting, self._live = self._live, {}
        for name, inbox in waiting.items():
            inbox.put(name, EngineAwayError(f"the answer was cut off: {why}"))
        asked, self._asked = self._asked, []
        for answer in asked:
            settle(answer, EngineAwayError(why))
        for waiters in self._ordered.values():
            while waiters:
                settle(waiters.pop(0), EngineAwayError(why))


def settle(answer: "asyncio.Future[Mapping[str, T]]", found: Mapping[str, T] | Exception) -> None:
    """Give an answer to whoever still waits for it."""
    if answer.done():
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)


def refusal(code: str, text: str) -> Exception:
    """The exception for an ERR line, or for an end with an error."""
    if code == BUSY:
        return QueueFullError(text)
    if code == TOO_LONG:
        return CapacityError(text, param="messages")
    if code in {BAD_REQUEST, UNSUPPORTED}:
        return RequestError(text)
    return EngineError(text)
