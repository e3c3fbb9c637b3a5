"""What a step led to."""

from dataclasses import dataclass


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
    error: str = ""
    """Why this window failed, though others of its step did not; what its slot holds is not relied on then."""
