"""Where windows of a prompt end so that its state can be kept there. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from strata.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Spacing:
    """Which lengths of a sequence are worth keeping; all are multiples of `grid`."""

    grid: int
    """Where windows may be cut without changing the arithmetic (docs/numerics.md)."""
    every: int
    """A state is kept every so many tokens, prompt or answer."""
    most_marks: int = 6
    """Marks of one prompt that are used: the first, and the last ones. A stop costs a window of its own."""

    def __post_init__(self) -> None:
        if self.grid < 1 or self.every < 1 or self.every % self.grid or self.most_marks < 1:
            raise UsageError(f"states are kept every multiple of the grid ({self.grid}), found {self.every}")

    def stops(self, held: int, total: int, marks: Iterable[int], parted: int = 0) -> tuple[int, ...]:
        """Positions between `held` and `total`, increasing: below marks, where another prompt parted, every `every`.

        Below the last token too, for a prompt that comes again, unless a mark is as near to the end as the grid is.
        """
        places = sorted(set(marks))
        below = sorted({mark // self.grid * self.grid for mark in places} - {0})
        if len(below) > self.most_marks:
            below = [below[0], *below[1 - self.most_marks :]] if self.most_marks > 1 else below[-1:]
        wanted = {*below, parted // self.grid * self.grid, *self.regular(held, total)}
        if not any(total - self.grid <= mark < total for mark in places):
            wanted.add((total - 1) // self.grid * self.grid)
        return tuple(sorted(stop for stop in wanted if held < stop < total))

    def regular(self, held: int, total: int) -> range:
        """Multiples of `every` between `held` and `total`."""
        return range((held // self.every + 1) * self.every, total, self.every)
