"""What constrained decoding asks of a sampler."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class TokenMask(Protocol):
    """Which tokens may come next, as a state that follows the answer and can go back."""

    def mask(self) -> NDArray[np.bool_]:
        """[V], True where a token is allowed now."""
        ...

    def advance(self, ids: Sequence[int]) -> None:
        """`ids` were added to the answer."""
        ...

    def rollback(self, count: int) -> None:
        """The last `count` tokens were taken back (drafts that were not accepted)."""
        ...
