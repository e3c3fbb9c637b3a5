"""Who waits for another model than the one that is loaded, in the order in which they asked."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from strata.server.catalog import Model
from strata.server.memory import Freed

Why = Literal["switch", "asked", "idle", "shutdown"]
"""Why a model is unloaded: for another one, on demand, for want of requests, with the server."""


def _future() -> "asyncio.Future[Freed]":
    return asyncio.get_running_loop().create_future()


@dataclass(eq=False, slots=True)
class Turn:
    """Somebody waits for a model; or, with None, for the loaded one's end, and for what that frees."""

    model: Model | None
    why: Why = "switch"
    """Why what is loaded ends."""
    done: "asyncio.Future[Freed]" = field(default_factory=_future)


class Turns:
    """First come, first served; but when a model is there, everybody goes on who waits for it."""

    def __init__(self) -> None:
        self._waiting: deque[Turn] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Turn | None:
        """Who waits longest."""
        return self._waiting[0] if self._waiting else None

    def add(self, turn: Turn) -> None:
        """Another one, at the end."""
        self._waiting.append(turn)

    def leave(self, turn: Turn) -> None:
        """Not waiting any more, if it was."""
        if turn in self._waiting:
            self._waiting.remove(turn)

    def settle(self, model: Model | None, found: Freed | Exception) -> int:
        """Everybody who waits for `model` goes on, or hears why not -> how many went on."""
        turns = [turn for turn in self._waiting if turn.model is model and not turn.done.done()]
        self._waiting = deque(turn for turn in self._waiting if turn.model is not model)
        for turn in turns:
            if isinstance(found, Exception):
                turn.done.set_exception(found)
            else:
                turn.done.set_result(found)
        return 0 if isinstance(found, Exception) else len(turns)

    def refuse(self, why: Exception) -> None:
        """Nobody goes on."""
        for model in {turn.model for turn in self._waiting}:
            self.settle(model, why)
