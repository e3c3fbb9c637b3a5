"""Which experts rows will probably read: those that rows of the same tokens read last. Pure.

Early layers route by the token above all; later ones by what the text is about, which changes slowly. So a draft's
token tells much of what its verification will read, before any layer has run.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MOST = 4096
"""Tokens that are remembered: a megabyte for every 128 choices of a token."""

Choices = npt.NDArray[np.int32]


class Forecast:
    """The last choices of every token."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.last: OrderedDict[int, Choices] = OrderedDict()
        """By token, int32 [layers, k]; the one seen longest ago first."""

    def learn(self, tokens: Sequence[int], ids: Choices) -> None:
        """Rows of `tokens` chose `ids` [layers, T, k]."""
        for row, token in enumerate(tokens):
            self.last[token] = ids[:, row].copy()
            self.last.move_to_end(token)
        while len(self.last) > self.most:
            self.last.popitem(last=False)

    def of(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """(number of the layer among those with experts, expert) of rows of `tokens`, layer by layer, each once."""
        known = [self.last[token] for token in tokens if token in self.last]
        if not known:
            return []
        chosen = np.concatenate(known, axis=1)
        return [(layer, expert) for layer, row in enumerate(chosen) for expert in dict.fromkeys(row.tolist())]
