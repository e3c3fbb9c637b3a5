"""All the engine sees of the device side: ids and counts, no tensors. The runtime fits this protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from strata.core.limits import Limits
from strata.core.window import Window
from strata.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token that a step produced."""

    token: int
    logprob: float | None = None
    """Natural log of its probability before truncation, when the request asked for it."""
    top: tuple[tuple[int, float], ...] = ()
    """(token, logprob) of the likeliest alternatives, likeliest first."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one window led to: the accepted tokens in order (none for score 0), now the slot's length."""

    slot: int
    drawn: tuple[Drawn, ...]
    length: int
    """Tokens the slot's state now holds (committed). The last drawn token is not among them yet."""


class Runner(Protocol):
    """Runs windows on a device and keeps the slots' states."""

    @property
    def limits(self) -> Limits:
        """Fixed sizes."""
        ...

    def known(self, tokens: Sequence[int]) -> int:
        """How many leading tokens are already held somewhere and need no reading."""
        ...

    def seat(self, slot: int, tokens: Sequence[int], params: SamplingParams) -> int:
        """Prepare `slot` for a sequence that starts with `tokens`; returns how many of them it already holds."""
        ...

    def release(self, slot: int) -> None:
        """The slot's request is over; its state may be kept or dropped."""
        ...

    def draft(self, caps: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """Proposed next tokens per slot, at most caps[slot] of them; slots without a proposal may be missing."""
        ...

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        """Run the windows (at most one per slot) and return one result per window, in order.

        Of a window with score 1 + k its last k tokens are drafts: they are accepted while each
        equals the row's own draw.
        """
        ...

    def status(self) -> Mapping[str, object]:
        """Plain values for STAT and /v1/status."""
        ...
