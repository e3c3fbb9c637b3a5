"""Several requests through one live engine, and what each of them got, with the times."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strata.engine.engine import Engine
from strata.engine.events import Event, Finished, Reused, Token
from strata.engine.request import Request
from strata.engine.session import Session


@dataclass(frozen=True, slots=True)
class Part:
    """One request of a crowd."""

    request: Request
    cancel_after: int | None = None
    """Answer tokens after which its client leaves."""
    after: tuple[str, int] | None = None
    """It comes when the request of this id has said so many tokens; None: with the first ones."""


@dataclass(slots=True)
class Answer:
    """What one request got."""

    asked_s: float
    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    """When each token came; seconds of time.perf_counter."""
    reused: int = 0
    tier: str = ""
    finished: Finished | None = None

    @property
    def first_s(self) -> float:
        """Seconds to the first token; infinity when none came."""
        return self.times_s[0] - self.asked_s if self.times_s else float("inf")

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between tokens."""
        return [b - a for a, b in zip(self.times_s, self.times_s[1:], strict=False)]


Progress = Callable[[int, int], None]
"""(answers that ended, answers in all)"""


class Crowd:
    """Runs the parts on a started engine; events arrive on the engine's thread."""

    def __init__(self, engine: Engine, parts: Sequence[Part], progress: Progress | None = None) -> None:
        self.engine = engine
        self.parts = {part.request.id: part for part in parts}
        self.answers: dict[str, Answer] = {}
        self.waiting = [part for part in parts if part.after is not None]
        self.progress = progress
        self.left = len(parts)
        self.over = threading.Event()

    def run(self, timeout_s: float = 3600.0) -> Mapping[str, Answer]:
        """Submit all and wait for every end; TimeoutError when one does not come."""
        for part in self.parts.values():
            if part.after is None:
                self.submit(part)
        if not self.over.wait(timeout_s):
            raise TimeoutError(f"{self.left} of {len(self.parts)} requests have not ended after {timeout_s:g} s")
        return self.answers

    def submit(self, part: Part) -> None:
        """Send one request."""
        self.answers[part.request.id] = Answer(time.perf_counter())
        self.engine.submit(part.request, self.take)

    def take(self, session: Session, event: Event) -> None:
        """One event of one session."""
        part = self.parts[session.request.id]
        answer = self.answers[session.request.id]
        if isinstance(event, Token):
            answer.tokens.append(event.token)
            answer.times_s.append(time.perf_counter())
            if len(answer.tokens) == part.cancel_after:
                session.cancel()
            self.call(part.request.id, len(answer.tokens))
        elif isinstance(event, Reused):
            answer.reused, answer.tier = event.tokens, event.tier
        elif isinstance(event, Finished):
            answer.finished = event
            self.left -= 1
            if self.progress is not None:
                self.progress(len(self.parts) - self.left, len(self.parts))
            if not self.left:
                self.over.set()

    def call(self, name: str, said: int) -> None:
        """Send those who were to come now."""
        due = [part for part in self.waiting if part.after == (name, said)]
        self.waiting = [part for part in self.waiting if part not in due]
        for part in due:
            self.submit(part)


def difference(expected: Mapping[str, Answer], found: Mapping[str, Answer], parts: Iterable[Part]) -> str:
    """Where the first request differs from its solo run: its id, answer position and both tokens; "" when none does.

    Of a request that was cancelled only the beginning is compared; it must have come as far as its client stayed.
    """
    for part in parts:
        name = part.request.id
        alone, here = expected[name], found[name]
        for at, (a, b) in enumerate(zip(alone.tokens, here.tokens, strict=False)):
            if a != b:
                return f"request {name}, answer position {at}: token {b}, alone it is {a}"
        least = len(alone.tokens) if part.cancel_after is None else min(part.cancel_after, len(alone.tokens))
        if not least <= len(here.tokens) <= len(alone.tokens):
            return f"request {name}: {len(here.tokens)} tokens, alone there are {len(alone.tokens)}"
        if here.finished is None or here.finished.reason.value == "error":
            return f"request {name} failed: {here.finished.error if here.finished else 'no end'}"
    return ""
