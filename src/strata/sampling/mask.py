"""What constrained decoding asks of a sampler."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class TokenMask(Protocol):
    """Which tokens may come next, as a state that follows the answer and can go back."""

    def mask(self) -> NDArray[np.bool_] | None:
        """[V], True where a token is allowed now; None where all are. EngineError: it cannot be told."""
        ...

    def advance(self, token: int) -> None:
        """`token` was added to the answer."""
        ...

    def rollback(self, count: int) -> None:
        """The last `count` tokens were taken back (drafts along which the state went ahead)."""
        ...

    def fitting(self, tokens: Sequence[int]) -> int:
        """How many of `tokens`, one after the other, are allowed from here."""
        ...
