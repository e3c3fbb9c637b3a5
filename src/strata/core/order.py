"""What can be asked about kept conversations, apart from any request."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Order:
    """What to do with conversations that no slot uses."""

    verb: Literal["park", "restore", "save"]
    """park: all out of the pages; restore: what is held of `tokens` back into them; save: all to disk."""
    tokens: tuple[int, ...] = ()
