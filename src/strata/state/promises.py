"""Whether pages can be promised to sequences that may grow, so that none ever waits for another that waits for it.

A sequence is promised pages for its prompt and some tokens ahead, and asks for more as it grows. A promise is kept
only while some order exists in which every sequence could grow to its most and end (the banker's rule: Dijkstra, EWD
623, 1977). So many long contexts share a pool in which one of them fits, and whoever finds no page waits for the
others, never for ever. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """One sequence, in pages."""

    lacks: int
    """It may still ask for, beyond what it was promised."""
    returns: int
    """Others can have when it ends."""


def safe(spare: int, needs: Iterable[Need]) -> bool:
    """Whether, with `spare` pages to be had, all can grow to their most and end, one after the other."""
    for need in sorted(needs, key=lambda need: need.lacks):
        if need.lacks > spare:
            return False
        spare += need.returns
    return spare >= 0
