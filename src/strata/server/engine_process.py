"""The engine behind the line protocol: a child process that is started, started again after a crash, and ended."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from strata.core.errors import EngineError
from strata.core.log import Log
from strata.engine.protocol import Fatal, Info, Ready, format_gen
from strata.engine.request import Request
from strata.server.engine_child import EngineChild, Patience
from strata.server.inbox import Inbox
from strata.server.replies import EXPERTS, STATUS, Answer, EngineAwayError, Replies

SAVE_AGAIN_S = 0.1
SAVE_TRIES = 20
"""In a row that bring nothing more on its way to the disk, until the rest is given up."""


class State(StrEnum):
    """Where the engine process stands."""

    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a crashed engine is started again, and how one is ended."""

    limit: int = 5
    """Crashes in a row before giving up; one that ran for `healthy_s` starts the count anew."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 15.0
    healthy_s: float = 60.0
    patience: Patience = field(default=Patience())
    save_s: float = 0.0
    """For conversations to reach the disk before the engine ends; 0 = they are not kept there."""

    def wait_s(self, crashes: int) -> float:
        """Pause before start number `crashes` + 1."""
        return float(min(self.first_wait_s * 2 ** (crashes - 1), self.longest_wait_s))


@dataclass(frozen=True, slots=True)
class Loading:
    """How far an engine is with what it does before it is ready."""

    what: str
    percent: int
    """Of that."""

    def values(self) -> dict[str, object]:
        """Plain values, for the log and for clients."""
        return {"percent": self.percent, "what": self.what}


class EngineProcess:
    """One engine child at a time. All methods belong to the event loop's thread."""

    def __init__(self, command: Sequence[str], log: Log, policy: RestartPolicy | None = None) -> None:
        self.command = tuple(command)
        self.state = State.LOADING
        self.reason = "the model is loading"
        """Why it is not ready, or the last crash."""
        self.ready: Ready | None = None
        self.loading: Loading | None = None
        """None before it has said anything of that, and when it is ready."""
        self.info: dict[str, str] = {}
        """Facts from INFO lines."""
        self.restarts = 0
        self.exit_code: int | None = None
        """Of the last child that ended."""
        self._words = ""
        self._log = log
        self._policy = policy or RestartPolicy()
        self._child: EngineChild | None = None
        self._replies = Replies(log)
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

    async def drained(self) -> None:
        """Wait, without limit, until no request is under way."""
        await self._replies.idle.wait()

    async def stop(self) -> None:
        """End the child and everything under way; may be called more than once."""
        self._stopping.set()
        if self._supervisor is not None:
            await asyncio.shield(self._supervisor)

    # --- requests, questions, orders ---------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Requests under way."""
        return len(self._replies.live)

    @property
    def pid(self) -> int | None:
        """The child's number, while there is one."""
        return None if self._child is None else self._child.process.pid

    def submit(self, request: Request, inbox: Inbox) -> None:
        """Send `request`, whose events go to `inbox` up to Finished or an error; EngineAwayError without an engine."""
        self.require_ready()
        self._replies.expect_events(request.id, inbox)
        self._send(format_gen(request))

    def cancel(self, request_id: str) -> None:
        """Ask for a request's end; Finished still comes."""
        if request_id in self._replies.live and self.state is State.READY:
            self._send(f"STOP {request_id}")

    def forget(self, request_id: str) -> None:
        """Ask for a request's end without waiting for it."""
        self.cancel(request_id)
        self._replies.forget(request_id)

    async def status(self) -> Answer:
        """The engine's own status."""
        return await self._ask(STATUS, "STAT")

    async def resize(self, mib: int) -> Mapping[str, int]:
        """Let experts take up to so much VRAM -> what they take. RequestError: they cannot."""
        return await self._ask("vram", f"VRAM {mib}")

    async def experts(self) -> Answer:
        """Where every expert is, and how much each is used: `ExpertMap.values`."""
        return await self._ask(EXPERTS, "EXPERTS")

    async def _ask(self, verb: str, line: str) -> Answer:
        self.require_ready()
        answer = self._replies.expect(verb)
        self._send(line)
        return await answer

    def require_ready(self) -> Ready:
        """What READY said; EngineAwayError while there is no engine."""
        if self.state is not State.READY or self.ready is None:
            raise EngineAwayError(f"the engine is not ready: {self.reason}", hint="try again in a moment")
        return self.ready

    def _send(self, line: str) -> None:
        if self._child is not None:
            self._child.send(line)

    # --- the child's life --------------------------------------------------------------------------------------

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
            child = await EngineChild.start(self.command, self._log, self._policy.patience)
        except OSError as error:
            self._words = f"the engine cannot be started: {error}"
            return False
        self._child = child
        stopper = asyncio.create_task(self._end_when_stopping(child))
        try:
            was_ready = await self._listen(child)
        finally:
            if self._stopping.is_set():
                self._fail_all()  # the stopper may wait for an answer of a child that is gone
            else:
                stopper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stopper
            self.exit_code = await child.end()
            self._child = None
            self.loading = None
            self._fail_all()
        return was_ready

    async def _listen(self, child: EngineChild) -> bool:
        """Hand out what the child says until it ends or says FATAL; True when it was ready."""
        was_ready = False
        async with contextlib.aclosing(child.messages()) as messages:
            async for message in messages:
                match message:
                    case Fatal(text):
                        self._words = f"the engine failed: {text}"
                        return was_ready
                    case Ready():
                        was_ready = True
                        self.ready, self.loading = message, None
                        await self._set(State.READY, "")
                    case Info({"loading": what, "percent": percent}):
                        self._note_progress(Loading(what.replace("_", " "), int(percent)))
                    case Info(fields):
                        self.info |= fields
                    case _:
                        self._replies.take(message)
        self._words = child.complaint
        return was_ready

    def _note_progress(self, loading: Loading) -> None:
        self.loading = loading
        if self.state is State.LOADING:
            self.reason = f"the model is loading ({loading.what}: {loading.percent}%)"

    def _fail_all(self) -> None:
        """Tell everybody who waits that the engine is gone."""
        if self.state is State.READY:
            self.state = State.RESTARTING
            self.reason = self._last_words()
        self._replies.fail("the server is shutting down" if self._stopping.is_set() else self._last_words())

    async def _end_when_stopping(self, child: EngineChild) -> None:
        await self._stopping.wait()
        if self.state is not State.READY:
            child.kill()  # it reads no line before the model is loaded, and has nothing to finish
            return
        self.state, self.reason = State.STOPPING, "the engine is being ended"
        live = self._replies.live
        self._replies.fail("the server is shutting down")
        for name in live:
            child.send(f"STOP {name}")
        if self._policy.save_s:
            await self._save(child)
        child.send("QUIT")
        await child.end(self._policy.save_s)

    async def _save(self, child: EngineChild) -> None:
        """Have what is kept of conversations written to disk, as far as there is time and room."""
        with contextlib.suppress(TimeoutError, EngineError):
            async with asyncio.timeout(self._policy.save_s):
                in_vain = 0
                while in_vain < SAVE_TRIES:
                    answer = self._replies.expect("save")
                    child.send("SAVE")
                    found = await answer
                    if not found["left"]:
                        return
                    in_vain = 0 if found["writing"] else in_vain + 1
                    await asyncio.sleep(SAVE_AGAIN_S)
