"""One request under way: a queue of events towards its client, two wishes (cancel, yield) back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

from strata.engine.events import Event, Finished
from strata.engine.request import Request


@dataclass(slots=True)
class Timeline:
    """What the scheduler writes down about a session; only the engine's thread changes it."""

    budget: int
    """Answer tokens it may take."""
    arrival: int
    arrived_s: float
    seated_s: float | None = None
    first_s: float | None = None
    """When its prompt had been read."""
    served_s: float = 0.0
    """When it arrived, or its last step ended."""
    left: int = 0
    """Prompt tokens still to be read, as far as known."""
    measured: bool = False
    """Whether `left` leaves out what is held already."""
    lacks: str = ""
    """Why it found no room, though a slot was free."""
    told: bool = False
    """Whether the log has it."""
    late: bool = False
    """Whether it once waited too long before its prompt was read: from then on nobody overtakes it."""
    looked_s: float = 0.0
    """What looking for its beginning among what is kept took while it waited."""
    match_s: float = 0.0
    """The same when it was seated."""
    restore_s: float = 0.0
    """What bringing it back took then."""
    tier: str = ""
    """The slowest place that reused tokens came from."""
    reused: int = 0
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    """In which it decoded."""
    answer: list[int] = field(default_factory=list)


class Session:
    """One mutable timeline. Events come from the engine's thread; any thread may read them, cancel or yield.

    With a `sink` each event is handed to it on the engine's thread (it must not block for long); without one they wait
    for `events()`. Exactly one Finished comes, last.
    """

    def __init__(
        self, request: Request, wake: Callable[[], None], sink: Callable[["Session", Event], None] | None = None
    ) -> None:
        self.request = request
        self._wake = wake
        self._sink = sink
        self._queue: SimpleQueue[Event] = SimpleQueue()
        self._finished: Finished | None = None
        self._cancelled = False
        self._yielding = False

    @property
    def finished(self) -> Finished | None:
        """How it ended; None while it lives."""
        return self._finished

    @property
    def cancelled(self) -> bool:
        """Whether its end was asked for."""
        return self._cancelled

    @property
    def yielding(self) -> bool:
        """Whether it was asked to give way."""
        return self._yielding

    def cancel(self) -> None:
        """End it at the next step; Finished(cancel) still comes, unless it ends on its own before."""
        self._cancelled = True
        self._wake()

    def give_way(self) -> None:
        """While its prompt is being read: end it at the next chunk border, keeping what was read in its slot.

        Yielded and Finished(cancel) come; the same request sent again goes on from there. A session whose prompt
        has been read goes on undisturbed.
        """
        self._yielding = True
        self._wake()

    def events(self) -> Iterator[Event]:
        """Events in order, waiting for each, up to and including Finished. For one reader, once."""
        while True:
            event = self._queue.get()
            yield event
            if isinstance(event, Finished):
                return

    def deliver(self, event: Event) -> None:
        """For the engine: hand `event` to the client; nothing is handed over after Finished."""
        if self._finished is not None:
            return
        if isinstance(event, Finished):
            self._finished = event
        if self._sink is None:
            self._queue.put(event)
        else:
            self._sink(self, event)
