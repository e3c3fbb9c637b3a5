"""What a reader of an answer sees: a closed union, the last event is always one Done."""

from dataclasses import dataclass
from typing import TypeAlias

from strata.engine.events import Finished, Reason
from strata.engine.protocol import DEADLINE


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token of the answer with its likelihood."""

    token: int
    piece: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()
    """(bytes, logprob) of the likeliest tokens, likeliest first."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the reasoning before the answer."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of a tool begins; its arguments follow, then the next call or the end."""

    id: str
    name: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of the arguments of the call that began last: joined they are one JSON object."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is over."""

    reason: Reason
    """STOP also for a stop string, LENGTH also for a deadline."""
    counts: Finished
    """The engine's own figures."""
    tokens: int
    """Tokens of the answer, up to and with the one that completed a stop string."""
    stop: str | None = None
    """The stop string that ended it."""
    thought: int = 0
    """How many of the tokens were reasoning, its markers included."""
    calls: int = 0
    """Tools that were called."""

    @property
    def late(self) -> bool:
        """Its deadline cut it off; `reason` is LENGTH then."""
        return self.counts.code == DEADLINE


Delta: TypeAlias = TextDelta | ReasoningDelta | CallStart | CallDelta
Event: TypeAlias = Delta | Done
