"""What happens to a session, in order. The last event is always one Finished."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Reason(StrEnum):
    """Why a session ended."""

    STOP = "stop"
    """A stop id was drawn."""
    LENGTH = "length"
    """`max_new` tokens, or the context is full."""
    CANCEL = "cancel"
    """Asked for by the client, gave way, or its deadline passed."""
    ERROR = "error"
    """The engine could not go on with it; `Finished.error` says why."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The prompt is read up to `read` of `total` tokens (reused ones included)."""

    read: int
    total: int


@dataclass(frozen=True, slots=True)
class Reused:
    """`tokens` leading prompt tokens were held already and are not read again; `tier` is where they were."""

    tokens: int
    tier: str = "slot"


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the answer."""

    token: int
    logprob: float | None = None
    """Natural log of its probability in the model's own distribution; None when not asked for."""
    top: tuple[tuple[int, float], ...] = ()
    """(token, logprob) of the likeliest tokens, likeliest first."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """The read gave way with `read` prompt tokens in its state; Finished(cancel) follows."""

    read: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The session is over. Times are seconds; `queue_s` + `prompt_s` + `decode_s` is its whole life."""

    reason: Reason
    prompt: int
    """Prompt tokens."""
    reused: int = 0
    """Prompt tokens that were not read again."""
    generated: int = 0
    """Answer tokens, the stop id not counted unless `echo_stop`."""
    drafted: int = 0
    """Draft tokens offered."""
    accepted: int = 0
    """Draft tokens that became part of the answer."""
    stop_id: int | None = None
    queue_s: float = 0.0
    prompt_s: float = 0.0
    decode_s: float = 0.0
    code: str = ""
    """With an error, or a deadline that passed: one of protocol.CODES."""
    error: str = ""
    steps: int = 0
    """Steps in which it decoded."""


Event: TypeAlias = Progress | Reused | Token | Yielded | Finished
