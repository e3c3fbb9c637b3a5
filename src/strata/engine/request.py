"""What a client asks for: token ids in, limits, sampling. Frozen and checked."""

import math
from dataclasses import dataclass, field

from strata.core.errors import CapacityError, RequestError, StrataError
from strata.core.limits import Limits
from strata.core.sharing import Sharing
from strata.sampling.params import SamplingParams

MAX_ID_CHARS = 128
MAX_TOKEN = (1 << 31) - 1


class QueueFullError(RequestError):
    """Too many sessions wait already; the same request may be sent again later."""

    after_s: int | None = None
    """In how many seconds there should be a place, where that is known."""


class DeadlineError(StrataError):
    """The request's deadline passed before its first token."""


def check_id(value: str) -> None:
    """Raise RequestError unless `value` can name a request on a protocol line."""
    plain = value.isprintable() and not any(c.isspace() or c == "=" for c in value)
    if not 0 < len(value) <= MAX_ID_CHARS or not plain or value == "-":
        raise RequestError(
            f"a request id is 1 to {MAX_ID_CHARS} characters (no space or '=', not '-'), found {value[:40]!r}",
            param="id",
        )


def _check_count(name: str, value: int | None, low: int) -> None:
    if value is not None and value < low:
        raise RequestError(f"{name} must be {low} or more, found {value}", param=name)


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how to continue it."""

    id: str
    tokens: tuple[int, ...]
    max_new: int | None = None
    """Answer tokens at most; 0 only reads the prompt; None = up to the end of the context."""
    params: SamplingParams = field(default=SamplingParams())
    stop_ids: tuple[int, ...] = ()
    echo_stop: bool = False
    """Report the stop id as a Token too."""
    priority: int = 0
    """Lower is seated first, as in vLLM; equal ones in order of arrival."""
    deadline_s: float | None = None
    """Seconds after submission at which the session is ended with reason cancel."""
    draft: int | None = None
    """Draft tokens per window at most; 0 = none; None = as many as the drafter finds worth it."""
    stream_from: int = 0
    """Answer tokens before this index are computed and counted but not reported (an answer taken up again)."""
    slot: int | None = None
    """The slot to sit in; None = any."""
    sharing: Sharing = field(default=Sharing())
    """Where its state is worth keeping for others."""

    def __post_init__(self) -> None:
        check_id(self.id)
        if not self.tokens:
            raise RequestError("the prompt has no tokens", param="tokens")
        ids_of = {"tokens": self.tokens, "stop_ids": self.stop_ids, "openers": self.sharing.openers}
        for name, ids in ids_of.items():
            low, high = min(ids, default=0), max(ids, default=0)
            if low < 0 or high > MAX_TOKEN:
                raise RequestError(
                    f"{name}: token ids are from 0 to {MAX_TOKEN}, found {low if low < 0 else high}", param=name
                )
        _check_count("max_new", self.max_new, 0)
        _check_count("draft", self.draft, 0)
        _check_count("stream_from", self.stream_from, 0)
        _check_count("slot", self.slot, 0)
        if any(not 0 <= mark <= len(self.tokens) for mark in self.sharing.marks):
            raise RequestError(f"marks are positions from 0 to {len(self.tokens)} (the prompt's end)", param="marks")
        if self.deadline_s is not None and not (math.isfinite(self.deadline_s) and self.deadline_s > 0):
            raise RequestError(f"deadline_s must be above 0, found {self.deadline_s!r}", param="deadline_s")

    def budget(self, limits: Limits) -> int:
        """Answer tokens this request may take; CapacityError when prompt and answer do not fit one slot."""
        new = max(1, limits.context - len(self.tokens)) if self.max_new is None else self.max_new
        if len(self.tokens) + new > limits.context:
            raise CapacityError(
                f"a prompt of {len(self.tokens)} tokens and {new} new ones do not fit the context of "
                f"{limits.context} tokens",
                param="max_new" if len(self.tokens) < limits.context else "tokens",
                hint="shorten the prompt, ask for fewer tokens, or start with a larger --ctx-size",
            )
        if self.slot is not None and self.slot >= limits.slots:
            raise CapacityError(f"slot {self.slot} was asked for, there are {limits.slots} (from 0)", param="slot")
        return new
