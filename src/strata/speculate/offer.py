"""What was proposed and what came of it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strata.speculate.drafter import Proposal


class Found(NamedTuple):
    """A proposal that may be checked."""

    drafter: str
    proposal: Proposal
    chances: tuple[float, ...]
    """Of its drafts, as far as they fit and are worth a thought: that it and all before it are right."""


@dataclass(slots=True)
class Offer:
    """What was proposed for a slot in the step under way."""

    made: dict[str, Proposal] = field(default_factory=dict)
    """By drafter."""
    source: str = ""
    """Whose drafts are checked."""
    checked: int = 0
    row: float = 0.0
    """Steps without drafts that each of its rows costs."""
    token: float = 0.0
    """Such steps that each token more is worth."""


@dataclass(slots=True)
class Counts:
    """Of one drafter, by depth."""

    offered: dict[int, int] = field(default_factory=dict)
    accepted: dict[int, int] = field(default_factory=dict)

    def add(self, checked: int, accepted: int) -> None:
        """`checked` drafts were in a window, the first `accepted` of them became part of the answer."""
        for counts, most in ((self.offered, checked), (self.accepted, accepted)):
            for depth in range(1, most + 1):
                counts[depth] = counts.get(depth, 0) + 1


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count
