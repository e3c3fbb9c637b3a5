"""What was proposed and what came of it. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
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
    """Of one drafter: windows by how many drafts were in them, and by how many became part of the answer."""

    checked: Counter[int] = field(default_factory=Counter)
    taken: Counter[int] = field(default_factory=Counter)

    def add(self, checked: int, accepted: int) -> None:
        """`checked` drafts were in a window, the first `accepted` of them became part of the answer."""
        self.checked[checked] += 1
        self.taken[accepted] += 1

    def values(self) -> dict[str, dict[str, int]]:
        """Plain values: drafts that were offered and accepted, by depth."""
        return {"offered": by_depth(self.checked), "accepted": by_depth(self.taken)}


def by_depth(windows: Mapping[int, int]) -> dict[str, int]:
    """Drafts by depth, from windows by the number of their drafts."""
    deepest = max(windows, default=0)
    return {str(d): sum(count for drafts, count in windows.items() if drafts >= d) for d in range(1, deepest + 1)}


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count
