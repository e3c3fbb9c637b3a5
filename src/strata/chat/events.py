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

    @property
    def late(self) -> bool:
        """Its deadline cut it off; `reason` is LENGTH then."""
        return self.counts.code == DEADLINE


Event: TypeAlias = TextDelta | ReasoningDelta | Done
