"""A limit of reasoning: when it is reached, what ends it is the only thing that may come."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.sampling.constraint import Constraint
from strata.sampling.mask import TokenMask


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer stands after some tokens."""

    tail: bytes = b""
    """The end of what was thought, one byte short of its closing mark."""
    closed: bool = False
    written: int = 0
    """Tokens of what closes it that were already forced."""
    begun: bool = True
    """It is known that the answer reasons (or that it does not: then it is closed)."""


class Budgeted:
    """A TokenMask that closes reasoning after so many tokens; another mask, if any, holds before and after."""

    def __init__(
        self, inner: TokenMask | None, asked: Constraint, closing: Sequence[int], pieces: Sequence[bytes], size: int
    ) -> None:
        """`closing`: the tokens of what `asked` writes to end reasoning; `pieces`: the bytes of every token."""
        self._inner = inner
        self._budget = asked.budget or 0
        self._open = asked.open.encode()
        self._close = asked.close.encode()
        self._closing = closing
        self._pieces = pieces
        self._size = size
        self._places = [_Place(begun=asked.opened)]
        """After each number of tokens."""

    def mask(self) -> NDArray[np.bool_] | None:
        """See TokenMask."""
        forced = self._forced(len(self._places) - 1, self._places[-1])
        if forced is None:
            return self._inner.mask() if self._inner is not None else None
        allowed = np.zeros(self._size, dtype=np.bool_)
        allowed[forced] = True
        return allowed

    def advance(self, token: int) -> None:
        """See TokenMask."""
        self._places.append(self._after(self._places[-1], token, len(self._places) - 1))
        if self._inner is not None:
            self._inner.advance(token)

    def rollback(self, count: int) -> None:
        """See TokenMask."""
        del self._places[len(self._places) - count :]
        if self._inner is not None:
            self._inner.rollback(count)

    def fitting(self, tokens: Sequence[int]) -> int:
        """See TokenMask."""
        place, made = self._places[-1], len(self._places) - 1
        count = 0
        for token in tokens:
            forced = self._forced(made, place)
            if forced is not None and forced != token:
                break
            place = self._after(place, token, made)
            made, count = made + 1, count + 1
        return count if self._inner is None else min(count, self._inner.fitting(tokens[:count]))

    def _forced(self, made: int, place: _Place) -> int | None:
        """The only token that may come, if there is one: the closing is written whole once it has begun."""
        if place.written:
            return self._closing[place.written] if place.written < len(self._closing) else None
        return self._closing[0] if place.begun and not place.closed and made >= self._budget else None

    def _after(self, place: _Place, token: int, made: int) -> _Place:
        written = place.written + (self._forced(made, place) is not None)
        if place.closed:
            return _Place(closed=True, written=written)
        text = place.tail + (self._pieces[token] if token < len(self._pieces) else b"")
        if not place.begun:
            start = text.lstrip()
            if not start.startswith(self._open):
                return _Place(text, closed=not self._open.startswith(start), begun=False)
        keep = len(self._close) - 1
        return _Place(text[max(0, len(text) - keep) :], self._close in text, written)
