"""Answers that end within their length: once what is left is needed for the end, only the end may come."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from strata.sampling.constraint import Constraint
from strata.sampling.ending import Closers, ShortestEnd
from strata.sampling.mask import TokenMask
from strata.sampling.smallest import Smallest, example_of, required_of, schemas_of, subschemas

LONGEST = 8192
"""Tokens of an end that is looked for at the beginning of an answer."""
SAMPLE = 8192
"""Characters of a schema by which it is told how many of them a token has."""
SPARE = 4
"""Tokens for what a single one may open beside the part it commits to."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What is known of the ends of one grammar's answers."""

    shortest: ShortestEnd
    structural: NDArray[np.bool_]
    """Tokens that may begin what cannot be left out again."""
    jump: int
    """Tokens by which one token may lengthen the shortest end."""
    stops: frozenset[int]
    first: tuple[int, ...] | None
    """A short answer, without its stop."""


def ends_of(constraint: Constraint, matcher: LLMatcher, closers: Closers, encode: Callable[[str], list[int]]) -> Ends:
    """Of the answers to `constraint`, whose grammar `matcher` has at its beginning."""
    schemas = schemas_of(constraint.grammar)
    parts = [part for schema in schemas for part in subschemas(schema)]
    words = {name for part in parts for name in required_of(part)} | {
        text for part in parts for text in example_of(part)
    }
    written = [json.dumps(word, ensure_ascii=False)[1:] for word in sorted(words)]
    shortest = ShortestEnd(closers, written, constraint.closing, encode)
    characters = max((Smallest(schema).largest_choice() for schema in schemas), default=0)
    sample = "".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)[:SAMPLE]
    jump = SPARE + math.ceil(characters * len(encode(sample)) / max(1, len(sample)))
    return Ends(shortest, closers.structural, jump, closers.stops, shortest.path(matcher, LONGEST))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer stands after some tokens."""

    end: tuple[int, ...] | None
    """A short end from a place at or before this one."""
    needed: int
    """Tokens of the shortest end at most."""
    forced: bool = False
    """`end` begins here, and nothing else may come."""


class TimelyMask:
    """A TokenMask that brings an answer of at most `most` tokens to its end.

    What it allows follows from the answer alone, never from when it was asked.
    """

    def __init__(self, inner: TokenMask, matcher: LLMatcher, ends: Ends, most: int) -> None:
        """`matcher`: what `inner` follows, and moves."""
        self._inner = inner
        self._matcher = matcher
        self._ends = ends
        self._most = most
        self._places: list[_Place] = []
        """After each number of tokens."""
        self._places.append(self._unknown() if ends.first is None else self._judged(ends.first))

    def mask(self) -> NDArray[np.bool_] | None:
        """See TokenMask."""
        allowed = self._inner.mask()
        place = self._places[-1]
        if allowed is None or not place.forced:
            return allowed
        only = np.zeros_like(allowed)
        only[[place.end[0]] if place.end else list(self._ends.stops)] = True
        return only if place.end else only & allowed

    def advance(self, token: int) -> None:
        """See TokenMask."""
        self._inner.advance(token)
        self._places.append(self._after(token))

    def rollback(self, count: int) -> None:
        """See TokenMask."""
        del self._places[len(self._places) - count :]
        self._inner.rollback(count)

    def fitting(self, tokens: Sequence[int]) -> int:
        """See TokenMask."""
        place = self._places[-1]
        if not place.forced:
            return self._inner.fitting(tokens)
        end = place.end or ()
        both = min(len(tokens), len(end))
        same = next((place for place in range(both) if tokens[place] != end[place]), both)
        if same == len(end) and len(tokens) > same and tokens[same] in self._ends.stops:
            return same + 1
        return same

    def _after(self, token: int) -> _Place:
        place = self._places[-1]
        if token in self._ends.stops or place.needed < 0:
            return _Place(None, -1)  # it is over
        if place.end and place.end[0] == token:
            left = place.end[1:]
            return _Place(left, len(left), forced=True) if place.forced else self._judged(left)
        needed = place.needed + 1 + (self._ends.jump if self._ends.structural[token] else 0)
        return self._looked_at(place.end) if self._near(needed) else _Place(place.end, needed)

    def _looked_at(self, known: tuple[int, ...] | None) -> _Place:
        """The place here, found out; `known` may still be an end."""
        if known and self._matcher.validate_tokens(list(known)) == len(known) and self._ends_with(known):
            return self._judged(known)
        end = self._ends.shortest.path(self._matcher, self._left())
        return self._unknown() if end is None else self._judged(end)

    def _unknown(self) -> _Place:
        """No end is in sight: it is looked for again when half of what is left has gone."""
        return _Place(None, max(0, self._left() // 2 - self._ends.jump))

    def _judged(self, end: tuple[int, ...]) -> _Place:
        return _Place(end, len(end), forced=self._near(len(end)))

    def _left(self) -> int:
        """Tokens that may still come, where the last place is still to be added."""
        return self._most - len(self._places)

    def _near(self, needed: int) -> bool:
        """Whether one more token of the model's own choice may be too many, with the stop after the end."""
        return needed + self._ends.jump + 2 >= self._left()

    def _ends_with(self, tokens: tuple[int, ...]) -> bool:
        ahead = self._matcher.deep_copy()
        return ahead.consume_tokens(list(tokens)) and ahead.is_accepting()
