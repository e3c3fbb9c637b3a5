"""What one engine can hold."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Fixed sizes of a running engine."""

    slots: int
    """Conversations that can be seated at once."""
    context: int
    """Tokens (prompt and answer) that one slot can hold."""
    step_tokens: int
    """Rows that one step may carry, all windows together."""
