"""Several models of which one is loaded at a time: who may use it, who waits for another one, when they change.

A request for the model that is loaded passes at once, unless somebody waits for another one: then it waits, too. When
the one who waits longest wants another model, what runs ends, the engine process is replaced, and everybody who waits
for the new model goes on. So nobody is kept waiting by more requests than ran or waited when it came.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from strata.core.errors import EngineError
from strata.core.log import Log
from strata.engine.request import QueueFullError
from strata.server.catalog import Catalog, Model
from strata.server.engine_process import EngineProcess, State
from strata.server.loader import Loader, Tally
from strata.server.memory import Freed
from strata.server.replies import EngineAwayError
from strata.server.turns import Turn, Turns, Why

UNLOADED = "unloaded"
NONE_LOADED = "no model is loaded"
CLOSING = "the server is shutting down"


@dataclass(frozen=True, slots=True)
class Terms:
    """How long models are kept and waited for."""

    queue_limit: int = 256
    """Requests that may wait for another model."""
    idle_s: float = 0.0
    """After so long without a request the model is unloaded; 0 = never."""


class Models:
    """All methods belong to the event loop's thread."""

    def __init__(
        self, models: Sequence[Model], log: Log, terms: Terms | None = None, facts: Mapping[str, object] | None = None
    ) -> None:
        """The first of `models` is loaded at the start; `facts` stand in the log's lines about them."""
        self.catalog = Catalog(models)
        self.closing = False
        """No request is taken any more."""
        self.terms = terms or Terms()
        self._loader = Loader(log, facts or {}, self._changed)
        self._turns = Turns()
        self._usual = self.catalog.models[0]
        self._holds = 0
        """Requests that may use the engine and have not yet asked it for anything."""
        self._changing = False
        """What is loaded ends, or loads: even who asks for that waits."""
        self._woken = asyncio.Event()
        self._used = asyncio.Event()
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # --- what there is -----------------------------------------------------------------------------------------

    @property
    def usual(self) -> Model:
        """The model of a request that names none: the one that is loaded, or was last."""
        return self._loader.model or self._usual

    @property
    def engine(self) -> EngineProcess | None:
        """The process of the model that is loaded, or loads."""
        return self._loader.engine

    @property
    def tally(self) -> Tally:
        """What happened to models so far."""
        return self._loader.tally

    @property
    def waiting(self) -> int:
        """Requests that wait for another model."""
        return len(self._turns)

    @property
    def failure(self) -> str:
        """Why no model can be loaded; empty while one can."""
        failures = [model.failure for model in self.catalog.models]
        return failures[0] if all(failures) else ""

    @property
    def state(self) -> str:
        """draining, unloaded, or one of State."""
        if self.closing:
            return "draining"
        if self.engine is not None and self.engine.state is not State.STOPPING:
            return self.engine.state.value
        if self._turns.first is not None and self._turns.first.model is not None:
            return State.LOADING.value  # what was loaded makes room
        return State.FAILED.value if self.failure else UNLOADED

    @property
    def reason(self) -> str:
        """Why requests are not answered at once; empty when they are."""
        if self.closing:
            return CLOSING
        return self.engine.reason if self.engine is not None else self.failure or NONE_LOADED

    def state_of(self, model: Model) -> str:
        """loaded, loading, failed or unloaded."""
        if model is self._loader.model and self.engine is not None:
            return "loading" if self.engine.state is State.LOADING else "loaded"
        return "failed" if model.failure else UNLOADED

    def find(self, asked: object) -> Model:
        """See Catalog.find."""
        return self.catalog.find(asked, self.usual)

    def passes(self, model: Model) -> bool:
        """Whether a request for `model` need not wait for anything before it uses the engine."""
        return model is self._loader.model and not (self._turns or self._changing)

    def require_engine(self) -> EngineProcess:
        """The process that answers now; EngineAwayError when there is none."""
        if self.engine is None:
            raise EngineAwayError(self.failure or NONE_LOADED, "a request for one loads it")
        self.engine.require_ready()
        return self.engine

    # --- what clients ask for ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def use(self, model: Model) -> AsyncIterator[EngineProcess]:
        """The engine of `model`, loaded first if need be; it stays while it is held, and while it has requests.

        QueueFullError: too many wait. EngineError: it cannot be loaded. EngineAwayError: the server shuts down.
        """
        self._refuse_if_closing()
        self._used.set()
        if model.failure:
            raise cannot_load(model)
        if self.passes(model):
            self._holds += 1
        else:
            if len(self._turns) >= self.terms.queue_limit:
                raise QueueFullError(f"{len(self._turns)} requests wait for another model already")
            await self._wait(Turn(model))
        try:
            if self.engine is None:  # it failed in this very moment
                raise cannot_load(model)
            yield self.engine
        finally:
            self._let_go()

    async def load(self, model: Model) -> None:
        """Load `model` in its turn, even if it failed before; EngineError when it cannot be loaded."""
        self._refuse_if_closing()
        self._used.set()
        model.failure = ""
        await self._wait(Turn(model))
        self._let_go()

    async def unload(self, why: Why = "asked") -> Freed:
        """Unload what is loaded, in turn and when what runs has ended -> what that freed."""
        self._refuse_if_closing()
        return await self._wait(Turn(None, why))

    def _refuse_if_closing(self) -> None:
        if self.closing:
            raise EngineAwayError(CLOSING, "try again in a moment")

    async def _wait(self, turn: Turn) -> Freed:
        self._turns.add(turn)
        self._changed()
        try:
            return await turn.done
        except asyncio.CancelledError:
            if turn.model is not None and turn.done.done() and not turn.done.cancelled():
                self._let_go()  # whoever waited left in the moment it was let in
            raise
        finally:
            self._turns.leave(turn)
            self._changed()

    def _let_go(self) -> None:
        self._holds -= 1
        self._changed()

    # --- from start to end -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the first model; what is asked for is carried out from now on."""
        self._loader.begin(self._usual)
        self._tasks.append(asyncio.create_task(self._conduct()))
        if self.terms.idle_s:
            self._tasks.append(asyncio.create_task(self._rest(self.terms.idle_s)))
        for task in self._tasks:
            task.add_done_callback(self._note_end)

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        """Without its tasks nobody would be let in any more: whoever waits for the end has to know."""
        if not (task.cancelled() or self.closing):
            self._error = task.exception()
            self._over.set()

    async def failed(self) -> None:
        """Wait, without limit, until no model can be loaded; raises what went wrong here, if that is why."""
        await self._over.wait()
        if self._error is not None:
            raise self._error

    async def drained(self) -> None:
        """Wait until nothing runs."""
        while self._holds:
            self._woken.clear()
            await self._woken.wait()
        if self.engine is not None:
            await self.engine.drained()

    def close(self) -> None:
        """Take no request any more; who waits for a model is told."""
        self.closing = True
        self._turns.refuse(EngineAwayError(CLOSING, "try again in a moment"))

    async def stop(self) -> None:
        """End everything, what runs included; may be called more than once."""
        self.close()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loader.end("shutdown")
        for model in self.catalog.models:
            await model.served.grammars.close()

    def _changed(self) -> None:
        self._woken.set()
        if self.failure:
            self._over.set()

    async def _conduct(self) -> None:
        """Carry out what is waited for, one after the other."""
        while True:
            while (turn := self._turns.first) is not None:
                await self._carry_out(turn)
            self._woken.clear()
            await self._woken.wait()

    async def _carry_out(self, turn: Turn) -> None:
        """Bring about what `turn` waits for, and let everybody go on who waits for the same."""
        model, freed = turn.model, Freed()
        if model is not self._loader.model:
            await self.drained()
            self._changing = True
            freed = await self._change(turn)
            self._changing = False
        if self._turns.first is not turn:
            return  # who wanted it has left
        if model is not None:
            await self._loader.arrive()
        if model is self._loader.model:
            self._usual = model or self._usual
            went_on = self._turns.settle(model, freed)
            self._holds += went_on if model is not None else 0
        elif model is not None:
            self._turns.settle(model, cannot_load(model))

    async def _change(self, turn: Turn) -> Freed:
        """End what is loaded, and load what `turn` waits for, unless it has left -> what the end freed."""
        freed = Freed()
        if self._turns.first is turn:
            freed = await self._loader.end(turn.why)
        if self._turns.first is turn and turn.model is not None:
            self._loader.begin(turn.model)
            await self._loader.arrive()
        return freed

    async def _rest(self, idle_s: float) -> None:
        """Unload whenever nothing was asked for so long."""
        while True:
            if self.engine is None:
                self._used.clear()
                await self._used.wait()
            await self._loader.arrive()
            self._used.clear()
            await self.drained()
            try:
                async with asyncio.timeout(idle_s):
                    await self._used.wait()
            except TimeoutError:
                if self.engine is not None and not self._turns:
                    await self.unload("idle")


def cannot_load(model: Model) -> EngineError:
    """Why a request for `model` fails."""
    return EngineError(f"model {model.name!r} cannot be loaded: {model.failure}", "POST /v1/load tries it again")
