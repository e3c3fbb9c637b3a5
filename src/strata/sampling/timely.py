"""Answers that end within their length: near it only what leaves room for an end may come."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from strata.sampling.constraint import Constraint
from strata.sampling.ending import Closers, ShortestEnd
from strata.sampling.lark import of_grammar, schemas_of
from strata.sampling.mask import TokenMask
from strata.sampling.search import Path, Search
from strata.sampling.smallest import example_of, required_of, subschemas

LONGEST = 8192
"""Tokens of an end that is looked for at the beginning of an answer."""
SAMPLE = 8192
"""Characters of a grammar by which it is told how many of them a token has."""
SPARE = 4
"""Tokens for what a single one may open beside the part it commits to."""
FEW = 128
"""So many tokens are looked at one by one: whether the answer can end in time after each."""
LOOKS = 8
"""For so many of them an end is searched; the others have to go on with one that is known."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What is known of the ends of one grammar's answers."""

    path: Path
    """Tokens to an end from a matcher's state, so many at most; None: none was found."""
    structural: NDArray[np.bool_]
    """Tokens that may begin what cannot be left out again."""
    jump: int
    """Tokens by which one token may lengthen the shortest end."""
    stops: frozenset[int]
    first: tuple[int, ...] | None
    """A short answer, without its stop."""


def ends_of(constraint: Constraint, matcher: LLMatcher, closers: Closers, encode: Callable[[str], list[int]]) -> Ends:
    """Of the answers to `constraint`, whose grammar `matcher` has at its beginning."""
    grammar = constraint.grammar
    parts = [part for schema in schemas_of(grammar) for part in subschemas(schema)]
    words = {name for part in parts for name in required_of(part)} | {
        text for part in parts for text in example_of(part)
    }
    written = sorted((json.dumps(word, ensure_ascii=False)[1:] for word in words), key=lambda word: len(encode(word)))
    closings = (constraint.closing, *constraint.closings)
    shortest = ShortestEnd(closers, [*constraint.names, *written], closings, encode)
    size = of_grammar(grammar)
    path: Path
    if constraint.marks:  # text is free but for them
        sample = grammar[-SAMPLE:]
        jump = SPARE + math.ceil(size.choice * len(encode(sample)) / max(1, len(sample)))
        path = shortest.path
    else:
        search = Search(closers, sorted({"\n", *size.words}), encode)
        jump = max(0, size.choice - 1)
        path = search.or_else(shortest.path)
    return Ends(path, closers.having(constraint.marks), jump, closers.stops, path(matcher, LONGEST))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer stands after some tokens."""

    end: tuple[int, ...] | None
    """A short end from a place at or before this one; None: none is known."""
    needed: int = 0
    """Tokens of the shortest end at most."""
    near: bool = False
    """`end` begins here, and not every token leaves room for one."""
    look: int = 0
    """Where none is known: it is looked for again when so many tokens are left."""


class TimelyMask:
    """A TokenMask that brings an answer of at most `most` tokens to its end, where one is found in time.

    What it allows follows from the answer alone, never from when it was asked.
    """

    def __init__(self, inner: TokenMask, matcher: LLMatcher, ends: Ends, most: int) -> None:
        """`matcher`: what `inner` follows, and moves."""
        self._inner = inner
        self._matcher = matcher
        self._ends = ends
        self._most = most
        self._places = [self._judged(ends.first, most)]
        """After each number of tokens."""

    def mask(self) -> NDArray[np.bool_] | None:
        """See TokenMask."""
        allowed = self._inner.mask()
        place = self._places[-1]
        if allowed is None or place.end is None or not place.near:
            return allowed
        if np.count_nonzero(allowed) <= FEW:
            return self._in_time(allowed, place.end)
        only = np.zeros_like(allowed)
        if len(place.end) + SPARE + 2 < self._left():
            only = allowed & ~self._ends.structural
        stops = list(self._ends.stops)
        only[stops] = allowed[stops]
        only[list(place.end[:1])] = True
        return only

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
        if not self._places[-1].near:
            return self._inner.fitting(tokens)
        count = 0
        for token in tokens:
            allowed = self.mask()
            if allowed is None or not allowed[token]:
                break
            self.advance(token)
            count += 1
        self.rollback(count)
        return count

    def _left(self) -> int:
        """Tokens that may still come."""
        return self._most - len(self._places) + 1

    def _in_time(self, allowed: NDArray[np.bool_], end: tuple[int, ...]) -> NDArray[np.bool_]:
        """Those after which an end is known, or found, that still fits."""
        only = np.zeros_like(allowed)
        looks = LOOKS
        for token in map(int, np.flatnonzero(allowed)):
            if token in self._ends.stops or end[:1] == (token,):
                only[token] = True
                continue
            ahead = self._matcher.deep_copy()
            if not ahead.consume_token(token):
                continue
            found = _known(ahead, end)
            if found is None and looks:
                looks -= 1
                found = self._ends.path(ahead, self._left() - 2)
            only[token] = found is not None and len(found) + 2 <= self._left()
        return only

    def _after(self, token: int) -> _Place:
        """The place that `token` leads to, which the matcher is at already."""
        place, left = self._places[-1], self._left() - 1
        if token in self._ends.stops or left < 1:
            return _Place(None, look=-1)  # it is over
        if place.end is None:
            return self._judged(self._ends.path(self._matcher, left), left) if left <= place.look else place
        if place.end[:1] == (token,) and place.needed == len(place.end):
            return self._judged(place.end[1:], left)
        needed = place.needed + 1 + (self._ends.jump if self._ends.structural[token] else 0)
        if not self._near(needed, left):
            return _Place(place.end, needed)
        end = _known(self._matcher, place.end)
        return self._judged(self._ends.path(self._matcher, left) if end is None else end, left)

    def _judged(self, end: tuple[int, ...] | None, left: int) -> _Place:
        """A place from which `end` leads to the end, with so many tokens left."""
        if end is None or len(end) + 1 > left:
            return _Place(None, look=left // 2)
        return _Place(end, len(end), self._near(len(end), left))

    def _near(self, needed: int, left: int) -> bool:
        """Whether one more token of the model's own choice may be too many, with the stop after the end."""
        return needed + self._ends.jump + 2 >= left


def _known(matcher: LLMatcher, end: tuple[int, ...]) -> tuple[int, ...] | None:
    """What is left of an end that was found some tokens ago; None where it leads nowhere."""
    for gone in range(min(3, len(end) + 1)):
        tokens = list(end[gone:])
        if matcher.validate_tokens(tokens) == len(tokens):
            ahead = matcher.deep_copy()
            if ahead.consume_tokens(tokens) and ahead.is_accepting():
                return end[gone:]
    return None
