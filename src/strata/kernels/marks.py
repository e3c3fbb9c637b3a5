"""Which part of a step each of its operations belongs to."""

from collections.abc import Sequence

from strata.kernels.step_program import Timing


class Marks:
    """Places in a list of operations, in order."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, str]] = []

    def add(self, end: int, part: str) -> None:
        """The operations before number `end` that no earlier mark has are of `part`."""
        self.ends.append((end, part))

    def apply(self, times: Sequence[tuple[str, int]]) -> list[Timing]:
        """(operation, nanoseconds) of every operation, with the part it is of."""
        found, at = [], 0
        for end, part in [*self.ends, (len(times), "")]:
            found += [Timing(part, operation, time) for operation, time in times[at:end]]
            at = max(at, end)
        return found
