"""What a sequence takes from others and leaves for them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sharing:
    """Where its state is worth keeping, as whoever wrote the prompt knows it."""

    marks: tuple[int, ...] = ()
    """Lengths of the prompt from which another may differ: ends of turns, of the system prompt, before tool calls."""
    openers: tuple[int, ...] = ()
    """Tokens that begin something which may be written differently later: state is kept before one that is drawn."""
    cached: bool = True
    """False: all is read anew, and nothing is left behind."""


SHARED = Sharing()
PRIVATE = Sharing(cached=False)
