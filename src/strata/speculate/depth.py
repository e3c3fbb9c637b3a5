"""How many drafts of each slot are worth a row of the step. Pure.

A step brings one token for each slot and, for each draft, its chance of being right together with all before it. So of
the ways to choose drafts the best is the one with the most expected tokens per second: drafts are taken in the order of
their chances (a slot's own chances never rise), and the step is ended where that quotient is largest.
"""

import heapq
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Chances = Mapping[int, Sequence[float]]
"""By slot: of every draft the chance that it and all before it are right; never rising."""


@dataclass(frozen=True, slots=True)
class Depths:
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
    tokens = float(slots)
    best = Depths({}, tokens, spent_s + step_s(slots))
    heap = [(-chain[0], slot, 0) for slot, chain in chances.items() if chain]
    heapq.heapify(heap)
    taken: dict[int, int] = {}
    rows = slots
    while heap:
        chance, slot, depth = heapq.heappop(heap)
        taken[slot], rows, tokens = depth + 1, rows + 1, tokens - chance
        seconds = spent_s + step_s(rows)
        if tokens / seconds > best.rate:
            best = Depths(dict(taken), tokens, seconds)
        if depth + 1 < len(chances[slot]):
            heapq.heappush(heap, (-chances[slot][depth + 1], slot, depth + 1))
    return best


def chain(chances: Sequence[float]) -> tuple[float, ...]:
    """The chances that all up to each are right, from those of each when those before it are right."""
    return tuple(itertools.accumulate(chances, operator.mul))
