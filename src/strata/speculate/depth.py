"""How many drafts of each slot are worth a row of the step. Pure.

A step brings one token for each slot and, for each draft, its chance of being right together with all before it. So of
the ways to choose drafts the best is the one with the most expected tokens per second: drafts are taken in the order of
their chances (a slot's own chances never rise), and the step is ended where that quotient is largest.
"""

import heapq
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Chances = Mapping[int, Sequence[float]]
"""By slot: of every draft the chance that it and all before it are right; never rising."""


class Depths(NamedTuple):
    """A choice, and what it is expected to give."""

    drafts: Mapping[int, int]
    """Drafts to check by slot; slots without any are missing."""
    tokens: float
    """Expected tokens of the step."""
    seconds: float
    """Expected time of the step, `spent` included."""

    @property
    def rate(self) -> float:
        """Expected tokens per second."""
        return self.tokens / self.seconds


def best_depths(slots: int, chances: Chances, step_s: Callable[[int], float], spent_s: float = 0.0) -> Depths:
    """The best choice for a step in which `slots` slots decode, which takes `step_s(rows)` after `spent_s` seconds."""
    if len(chances) == 1:
        return _of_one(slots, chances, step_s, spent_s)
    tokens = best_tokens = float(slots)
    best_s, best_count = spent_s + step_s(slots), 0
    heap = [(-chain[0], slot, 0) for slot, chain in chances.items() if chain]
    heapq.heapify(heap)
    taken: list[int] = []
    while heap:
        chance, slot, depth = heap[0]
        following = chances[slot]
        if depth + 1 < len(following):
            heapq.heapreplace(heap, (-following[depth + 1], slot, depth + 1))
        else:
            heapq.heappop(heap)
        taken.append(slot)
        tokens -= chance
        seconds = spent_s + step_s(slots + len(taken))
        if tokens * best_s > best_tokens * seconds:
            best_tokens, best_s, best_count = tokens, seconds, len(taken)
    return Depths(dict(Counter(taken[:best_count])), best_tokens, best_s)


def _of_one(slots: int, chances: Chances, step_s: Callable[[int], float], spent_s: float) -> Depths:
    """The same where one slot alone has drafts, without asking whose come first."""
    ((slot, chain),) = chances.items()
    tokens = best_tokens = float(slots)
    best_s, best_count = spent_s + step_s(slots), 0
    for count, chance in enumerate(chain, 1):
        tokens += chance
        seconds = spent_s + step_s(slots + count)
        if tokens * best_s > best_tokens * seconds:
            best_tokens, best_s, best_count = tokens, seconds, count
    return Depths({slot: best_count} if best_count else {}, best_tokens, best_s)


def chain(chances: Sequence[float]) -> tuple[float, ...]:
    """The chances that all up to each are right, from those of each when those before it are right."""
    return tuple(itertools.accumulate(chances, operator.mul))
