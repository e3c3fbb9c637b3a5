"""Two engines over the same work in short turns, A B B A A B B ..., so that whatever happens to the machine meets both.

A processor's clock changes by a third within seconds: rates of whole runs differ by that, and turns of some
milliseconds do not. Who waits for its turn does nothing, and its clock stands still.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from strata.core.window import Window
from strata.engine.runner import Runner, Stepped

Trace = list[tuple[int, float]]


class Lanes:
    """Whose turn it is, of two."""

    def __init__(self, tokens: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """A turn is over when its side has said 2 * `tokens` more; the very first one is half as long."""
        self.tokens = tokens
        self._clock = clock
        self._changed = threading.Condition()
        self._owner: int | None = None
        self._since: float | None = None
        """When the owner went on; None until its thread is awake."""
        self._waits: set[int] = set()
        self._going: set[int] = set()
        """Who has work left in this round."""
        self._traces: list[Trace] = [[], []]
        self._until = [0, 0]
        self._seconds = [0.0, 0.0]
        self._closed = False

    def begin(self, first: int) -> None:
        """A new round, in which side `first` comes first; both have been given work and are about to wait."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waits) == 2)
            self._traces = [[(0, seconds)] for seconds in self._seconds]
            self._until = [2 * self.tokens, 2 * self.tokens]
            self._until[first] = self.tokens
            self._going = {0, 1}
            self._hand_to(first)

    def enter(self, side: int) -> None:
        """Side `side` has something to do: returns when it is its turn."""
        with self._changed:
            self._wait(side)

    def said(self, side: int, tokens: int) -> None:
        """Its step said so many tokens; returns when it may go on."""
        with self._changed:
            trace = self._traces[side]
            said = trace[-1][0] + tokens
            trace.append((said, self._seconds_of(side)))
            if said < self._until[side] or 1 - side not in self._going:
                return
            while self._until[side] <= said:  # a step of drafts may say more than a turn has
                self._until[side] += 2 * self.tokens
            self._stop(side)
            self._hand_to(1 - side)
            self._wait(side)

    def leave(self, side: int) -> None:
        """It has no work left in this round."""
        with self._changed:
            self._going.discard(side)
            if self._owner == side:
                self._stop(side)
                self._traces[side].append((self._traces[side][-1][0], self._seconds[side]))
                self._hand_to(1 - side if self._going else None)

    def close(self) -> None:
        """Nobody waits for anybody from now on: the engines are about to end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def seconds(self, side: int) -> float:
        """Of all its turns so far: a clock for its engine."""
        with self._changed:
            return self._seconds_of(side)

    def trace(self, side: int) -> Trace:
        """Its last round: tokens said and `seconds` at its beginning, after each step, and at its end."""
        with self._changed:
            return list(self._traces[side])

    def _seconds_of(self, side: int) -> float:
        if self._owner != side or self._since is None:
            return self._seconds[side]
        return self._seconds[side] + self._clock() - self._since

    def _wait(self, side: int) -> None:
        if self._closed or (self._owner == side and self._since is not None):
            return
        self._waits.add(side)
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._owner == side or self._closed)
        self._waits.discard(side)
        self._since = self._clock()

    def _stop(self, side: int) -> None:
        if self._since is not None:
            self._seconds[side] += self._clock() - self._since

    def _hand_to(self, side: int | None) -> None:
        self._owner, self._since = side, None
        self._changed.notify_all()


class Lane:
    """Stands before the runner of one side."""

    def __init__(self, runner: Runner, lanes: Lanes, side: int) -> None:
        self.runner = runner
        self.lanes = lanes
        self.side = side

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)

    def known(self, tokens: Sequence[int]) -> int:
        """See `Runner.known`: what an engine asks first of every request."""
        self.lanes.enter(self.side)
        return self.runner.known(tokens)

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        """See `Runner.step`."""
        self.lanes.enter(self.side)
        stepped = self.runner.step(windows)
        self.lanes.said(self.side, sum(len(each.drawn) for each in stepped))
        return stepped

    def tell(self, ended: int, requests: int) -> None:
        """See `crowd.Tell`."""
        if ended == requests:
            self.lanes.leave(self.side)

    def trace(self) -> Trace:
        """See `Lanes.trace`."""
        return self.lanes.trace(self.side)

    def clock(self) -> float:
        """Seconds of its turns."""
        return self.lanes.seconds(self.side)
