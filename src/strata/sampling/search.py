"""The fewest tokens to an end of a grammar that is no JSON, by what its matcher allows, state after state."""

import heapq
from collections.abc import Callable, Iterator, Sequence

from llguidance import LLMatcher

from strata.sampling.ending import Closers, flags_of

Path = Callable[[LLMatcher, int], tuple[int, ...] | None]
WALKED = 512
"""Tokens of a way that another search may go."""
LONGEST = -1
"""Stands for the longest token, which is tried where nothing else changes what is allowed."""
TRIED = 400
"""States that are looked at before it is said that no end is in sight."""


class Search:
    """Looks for ends of one grammar's answers. The same state always gives the same end.

    States cannot be compared. Two count as the same where the same tokens were allowed one after the other, repetitions
    by single characters left out: a word of the grammar makes a new state even where it changes nothing.
    """

    def __init__(self, closers: Closers, words: Sequence[str], encode: Callable[[str], list[int]]) -> None:
        """`words`: texts that the grammar has, single characters included, in the order in which they are tried."""
        self._closers = closers
        self._words = [(number if len(word) > 1 else None, encode(word)) for number, word in enumerate(words)]

    def path(self, matcher: LLMatcher, limit: int) -> tuple[int, ...] | None:
        """Tokens from the state of `matcher`, which stays there, to one in which the answer may end; None: none was
        found within `limit` tokens.
        """
        if matcher.is_accepting():
            return ()
        first = (matcher.compute_bitmask(),)
        left: list[tuple[int, int, LLMatcher, tuple[int, ...], tuple[object, ...]]] = [(0, 0, matcher, (), first)]
        seen: set[tuple[object, ...]] = {first}
        tried = 0
        while left and tried < TRIED:
            _, _, state, made, trail = heapq.heappop(left)
            if state.is_accepting():
                return made
            changed = False
            for way, word in self._ways(state, trail[-1]):
                if word == LONGEST and changed:
                    continue
                tried += 1
                ahead = state.deep_copy()
                if len(made) + len(way) > limit or not ahead.consume_tokens(way):
                    continue
                bits = ahead.compute_bitmask()
                if ahead.is_error():
                    continue
                changed = changed or bits != trail[-1]
                longer = trail if word is None and bits == trail[-1] else (*trail, word, bits)
                if longer not in seen or ahead.is_accepting():
                    seen.add(longer)
                    heapq.heappush(left, (len(made) + len(way), tried, ahead, (*made, *way), longer))
        return None

    def or_else(self, other: Path) -> Path:
        """A path by this search, or else by another."""

        def found(matcher: LLMatcher, limit: int) -> tuple[int, ...] | None:
            first = self.path(matcher, limit)
            return other(matcher, min(limit, WALKED)) if first is None else first

        return found

    def _ways(self, state: LLMatcher, bits: object) -> Iterator[tuple[list[int], int | None]]:
        """(tokens that may come here, the number of the word that they are; None for a single character)."""
        if forced := state.compute_ff_tokens():
            yield forced, None
            return
        assert isinstance(bits, bytes)
        allowed = flags_of(bits, self._closers.letters.size)
        for number, word in self._words:
            if state.validate_tokens(word) == len(word):
                yield word, number
        for token in self._closers.likely(allowed):
            yield [token], None
        longest = self._closers.longest(allowed)
        if longest is not None:
            yield [longest], LONGEST
