"""When a step without drafts is run though drafts seem to pay: only so it is known what they are compared with. Pure.

Where every step has drafts, nothing corrects what one without takes: a few disturbed ones, measured once, made drafts
that lost a quarter of the rate look worth it for good. So one is run after some steps with drafts, at first soon, later
seldom, and soon again when it was not as expected.
"""

from collections import defaultdict
from dataclasses import dataclass, field

FIRST, LAST = 8, 128
"""Steps with drafts before such a look: at first, and at last, when it takes half a percent of what drafts bring."""
SURPRISE = 1.15
"""A step that took so many times longer, or less long, than expected was not as expected."""


@dataclass(slots=True)
class Pace:
    """Of one number of slots."""

    wait: int = FIRST
    drafted: int = 0
    """Steps with drafts since the last without."""


@dataclass(slots=True)
class Looks:
    """Of one engine."""

    paces: defaultdict[int, Pace] = field(default_factory=lambda: defaultdict(Pace))
    """By slots that decode."""

    def due(self, slots: int) -> bool:
        """Whether the next step of so many slots is to have no drafts."""
        return self.paces[slots].drafted >= self.paces[slots].wait

    def ran(self, slots: int, drafted: bool) -> None:
        """A step of so many slots is about to run."""
        pace = self.paces[slots]
        if drafted:
            pace.drafted += 1
            return
        if pace.drafted >= pace.wait:
            pace.wait = min(2 * pace.wait, LAST)
        pace.drafted = 0

    def saw(self, slots: int, seconds: float, expected: float) -> None:
        """A step without drafts took `seconds`."""
        if not 1 / SURPRISE <= seconds / expected <= SURPRISE:
            self.paces[slots].wait = FIRST
