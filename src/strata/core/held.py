"""What a runner holds of a prompt already."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Held:
    """The answer to seating a prompt."""

    tokens: int
    """Leading tokens that need no reading."""
    tier: str = "slot"
    """The slowest place that any of them came from."""
    stops: tuple[int, ...] = ()
    """Positions, increasing, where windows of the prompt should end, because its state is kept there."""
    match_s: float = field(default=0.0, compare=False)
    """Seconds that finding them took, of all that seating did; bringing them back took the rest."""
