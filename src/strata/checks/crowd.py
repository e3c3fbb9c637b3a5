"""Several requests through one live engine, and what each of them got, with the times."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strata.checks.watched import Watched
from strata.engine.engine import Engine
from strata.engine.events import Event, Finished, Progress, Reused, Token
from strata.engine.request import Request
from strata.engine.session import Session


@dataclass(frozen=True, slots=True)
class Moment:
    """When a request has said, or read, so many tokens."""

    request: str
    said: int = 0
    read: int = 0

    def reached(self, name: str, said: int, read: int) -> bool:
        """Whether it has come, with what request `name` has said and read."""
        return name == self.request and (said >= self.said if self.said else read >= self.read)


@dataclass(frozen=True, slots=True)
class Part:
    """One request of a crowd."""

    request: Request
    comes: Moment | None = None
    """When its client comes; None: with the first ones."""
    leaves: Moment | None = None
    """When its client leaves; None: it stays."""
    delay_s: float = 0.0
    """It comes so many seconds after its moment: while a step runs, and not between two."""

    @property
    def least(self) -> int | None:
        """Answer tokens that it gets at least; None: all."""
        if self.leaves is None:
            return None
        return self.leaves.said if self.leaves.request == self.request.id else 0


@dataclass(slots=True)
class Answer:
    """What one request got."""

    asked_s: float
    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    """When each token came; seconds of time.perf_counter."""
    steps: list[int] = field(default_factory=list)
    """Steps that had run when each token came, where the runner is watched."""
    read: int = 0
    """Prompt tokens read so far, reused ones included."""
    reused: int = 0
    tier: str = ""
    slot: int | None = None
    """Where it sat, where the runner is watched."""
    left_step: int | None = None
    """Steps that had run when its client left, where the runner is watched."""
    finished: Finished | None = None

    @property
    def first_s(self) -> float:
        """Seconds to the first token; infinity when none came."""
        return self.times_s[0] - self.asked_s if self.times_s else float("inf")

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between tokens."""
        return [b - a for a, b in zip(self.times_s, self.times_s[1:], strict=False)]


Tell = Callable[[int, int], None]
"""(answers that ended, answers in all)"""
Action = tuple[Moment, Callable[[], None]]


class Crowd:
    """Runs the parts on a started engine; events arrive on the engine's thread."""

    def __init__(
        self,
        engine: Engine,
        parts: Sequence[Part],
        tell: Tell | None = None,
        watched: Watched | None = None,
        actions: Sequence[Action] = (),
        until: Sequence[str] = (),
    ) -> None:
        """`watched` is the engine's runner; `actions` are done at their moments, on the engine's thread.

        When all of the requests `until` have ended, the other clients leave (empty: they stay).
        """
        self.engine = engine
        self.parts = {part.request.id: part for part in parts}
        self.answers: dict[str, Answer] = {}
        self.sessions: dict[str, Session] = {}
        self.tell = tell
        self.watched = watched
        self.actions = list(actions)
        self.until = set(until)
        self.left = len(parts)
        self.over = threading.Event()

    def run(self, timeout_s: float = 3600.0) -> Mapping[str, Answer]:
        """Submit all and wait for every end; TimeoutError when one does not come."""
        self.begin()
        return self.wait(timeout_s)

    def begin(self) -> None:
        """Submit all who come first."""
        for part in self.parts.values():
            self.plan(part)
        for part in self.parts.values():
            if part.comes is None:
                self.submit(part)

    def wait(self, timeout_s: float = 3600.0) -> Mapping[str, Answer]:
        """Every answer, once all have ended; TimeoutError when one does not."""
        if not self.over.wait(timeout_s):
            raise TimeoutError(f"{self.left} of {len(self.parts)} requests have not ended after {timeout_s:g} s")
        return self.answers

    def plan(self, part: Part) -> None:
        """Take note of when its client comes and leaves."""
        if part.comes is not None:
            self.actions.append((part.comes, lambda: self.later(part)))
        if part.leaves is not None:
            self.actions.append((part.leaves, lambda: self.leave(part.request.id)))

    def later(self, part: Part) -> None:
        """Send one request whose moment has come."""
        if part.delay_s:
            threading.Timer(part.delay_s, self.submit, [part]).start()
        else:
            self.submit(part)

    def submit(self, part: Part) -> None:
        """Send one request."""
        name = part.request.id
        self.answers[name] = Answer(time.perf_counter())
        self.sessions[name] = self.engine.submit(part.request, self.take)

    def leave(self, name: str) -> None:
        """One client leaves."""
        self.answers[name].left_step = self.step()
        self.sessions[name].cancel()

    def step(self) -> int:
        """Steps that have run; 0 where nobody counts."""
        return len(self.watched.notes) if self.watched is not None else 0

    def take(self, session: Session, event: Event) -> None:
        """One event of one session."""
        name = session.request.id
        answer = self.answers[name]
        self.sessions.setdefault(name, session)  # its first event may come before submit has returned
        if isinstance(event, Token):
            answer.tokens.append(event.token)
            answer.times_s.append(time.perf_counter())
            answer.steps.append(self.step())
        elif isinstance(event, Progress):
            answer.read = event.read
        elif isinstance(event, Reused):
            answer.reused, answer.tier = event.tokens, event.tier
        self.act(name, answer, over=isinstance(event, Finished))
        if isinstance(event, Finished):
            self.end(session, answer, event)

    def end(self, session: Session, answer: Answer, event: Finished) -> None:
        """One answer has ended."""
        answer.finished = event
        if self.watched is not None and (seatings := self.watched.seatings_of(session.request.tokens)):
            answer.slot = self.watched.slot(seatings[-1])
        if session.request.id in self.until:
            self.until.discard(session.request.id)
            if not self.until:
                for name in [name for name, other in self.answers.items() if other.finished is None]:
                    self.leave(name)
        self.left -= 1
        if self.tell is not None:
            self.tell(len(self.parts) - self.left, len(self.parts))
        if not self.left:
            self.over.set()

    def act(self, name: str, answer: Answer, over: bool) -> None:
        """Do what was to be done now; of a request that is over, all that waited for it, so that nobody waits on."""
        due = [
            (moment, action)
            for moment, action in self.actions
            if moment.reached(name, len(answer.tokens), answer.read) or (over and moment.request == name)
        ]
        self.actions = [action for action in self.actions if action not in due]
        for _, action in due:
            action()


def difference(expected: Mapping[str, Answer], found: Mapping[str, Answer], parts: Iterable[Part]) -> str:
    """Where the first request differs from its solo run: its id, slot, answer position and both tokens; "" = nowhere.

    Of a request whose client left only the beginning is compared; it must have come as far as its client stayed.
    """
    for part in parts:
        name = part.request.id
        if problem := deviation(expected[name], found[name], part):
            where = "" if found[name].slot is None else f" in slot {found[name].slot}"
            return f"request {name}{where}{problem}"
    return ""


def deviation(alone: Answer, here: Answer, part: Part) -> str:
    """How one answer differs from the one given alone; "" when it does not."""
    for at, (a, b) in enumerate(zip(alone.tokens, here.tokens, strict=False)):
        if a != b:
            return f", answer position {at}: token {b}, alone it is {a}"
    if here.finished is None or here.finished.reason.value == "error":
        return f" failed: {here.finished.error if here.finished else 'no end'}"
    least = len(alone.tokens) if part.least is None else min(part.least, len(alone.tokens))
    if not least <= len(here.tokens) <= len(alone.tokens):
        return f": {len(here.tokens)} tokens, alone there are {len(alone.tokens)}"
    if part.leaves is not None and here.finished.reason.value != "cancel":
        return f" ended with {here.finished.reason.value}, though its client left"
    return ""
