"""The engine process of the model that is loaded: begun, watched and ended, with a line in the log for each."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from strata.core.log import Log
from strata.server.catalog import Model
from strata.server.engine_process import EngineProcess, State
from strata.server.memory import Freed, held_by
from strata.server.turns import Why

PROGRESS_EVERY_S = 5.0


@dataclass(slots=True)
class Tally:
    """What happened to models since the server started."""

    loads: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (model, loaded or failed)."""
    load_s: dict[str, float] = field(default_factory=dict)
    """Seconds of all loads, by model."""
    unloads: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (model, reason)."""
    restarts: int = 0
    """Engine processes started again after a failure."""


class Loader:
    """At most one engine process. All methods belong to the event loop's thread."""

    def __init__(self, log: Log, facts: Mapping[str, object], changed: Callable[[], None]) -> None:
        """`facts` stand in every line of the log; `changed` is called when a model has failed."""
        self.model: Model | None = None
        """What is loaded, or loads."""
        self.engine: EngineProcess | None = None
        """Its process."""
        self._log = log
        self._facts = facts
        self._changed = changed
        self._tally = Tally()
        self._watcher: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()

    @property
    def tally(self) -> Tally:
        """With what the present process counts."""
        found = Tally(self._tally.loads, self._tally.load_s, self._tally.unloads, self._tally.restarts)
        found.restarts += self.engine.restarts if self.engine is not None else 0
        return found

    def begin(self, model: Model) -> None:
        """Start to load `model`; nothing may be loaded."""
        assert self.engine is None, "one at a time"
        self.model, self.engine = model, model.engine()
        self._arrived.clear()
        self.engine.start()
        self._watcher = asyncio.create_task(self._watch(model, self.engine))

    async def arrive(self) -> None:
        """Wait until what loads is loaded, or has failed and is gone."""
        await self._arrived.wait()

    async def end(self, why: Why) -> Freed:
        """End the process, if there is one -> what that freed."""
        model, engine, watcher = self.model, self.engine, self._watcher
        if model is None or engine is None or watcher is None:
            return Freed()
        freed = await held_by(engine)
        await engine.stop()
        await asyncio.shield(watcher)
        self._forget(engine)
        self._tally.unloads[model.name, why] += 1
        self._log.info("unloaded", model=model.name, reason=why, **freed.mib())
        return freed

    def _forget(self, engine: EngineProcess) -> None:
        if engine is self.engine:  # which may have failed while it was ended
            self._tally.restarts += engine.restarts
            self.model = self.engine = self._watcher = None

    async def _watch(self, model: Model, engine: EngineProcess) -> None:
        """Say how the engine is doing, until it is ended or beyond help."""
        began_s = time.monotonic()
        self._log.info("loading", model=model.name, **self._facts)
        first = True
        while True:
            state = await self._progress(model, engine)
            if state is State.READY:
                self._note_ready(model, engine, time.monotonic() - began_s if first else None)
                first = False
                state = await engine.wait_for(State.RESTARTING, State.FAILED, State.STOPPED)
            if state is State.FAILED:
                self._log.warning("model failed", model=model.name, reason=engine.reason)
                model.failure = engine.reason
                self._tally.loads[model.name, "failed"] += first
                self._forget(engine)
                self._changed()
            if state is not State.RESTARTING:
                self._arrived.set()
                return

    async def _progress(self, model: Model, engine: EngineProcess) -> State:
        """Wait for the engine, with a line every few seconds -> what became of it."""
        began_s = time.monotonic()
        waiting = asyncio.ensure_future(engine.wait_for(State.READY, State.FAILED, State.STOPPED))
        try:
            while not (await asyncio.wait({waiting}, timeout=PROGRESS_EVERY_S))[0]:
                how = engine.loading.values() if engine.loading is not None else {}
                seconds = round(time.monotonic() - began_s)
                self._log.info(engine.state.value, model=model.name, seconds=seconds, **how)
            return waiting.result()
        finally:
            waiting.cancel()

    def _note_ready(self, model: Model, engine: EngineProcess, load_s: float | None) -> None:
        if load_s is not None:
            self._tally.loads[model.name, "loaded"] += 1
            self._tally.load_s[model.name] = self._tally.load_s.get(model.name, 0.0) + load_s
        model.context = engine.require_ready().context
        self._log.info("ready", **{**engine.info, **self._facts, "model": model.name, "context": model.context})
        self._arrived.set()
