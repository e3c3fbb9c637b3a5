"""A step that is recorded once and run again: what every kind of operations offers for it.

The operations of a program read and write the same addresses whenever it runs, so a step's inputs are written to where
they were. What an operation reads must be made by an operation of the same program, or outlive the program (weights,
states, inputs).
"""

from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class Timing(NamedTuple):
    """How long something of a program took."""

    part: str
    """The mark that closed the part of the step; empty after the last one."""
    operation: str
    """Empty where the operations of a part are not told apart."""
    nanoseconds: int
    """In all timed runs."""


class StepProgram(Protocol):
    """The recorded operations and their memory."""

    @property
    def runs_while_recording(self) -> bool:
        """Whether operations also run as they are recorded.

        Where they do not, `run` must follow, and the same step must have run op by op once before: what is made at
        first use (kernels that are compiled, weights that are brought to the device) cannot be recorded.
        """
        ...

    def __len__(self) -> int:
        """Operations (launches, on a device)."""
        ...

    def recording(self) -> AbstractContextManager[None]:
        """Every operation is recorded until the block ends."""
        ...

    def mark(self, part: str) -> None:
        """All that was recorded since the mark before is `part` of the step, in `times`."""
        ...

    def run(self) -> None:
        """All operations in order. On a device they may still be running when this returns."""
        ...

    def run_timed(self) -> None:
        """`run` to its end, and the time of everything is added up."""
        ...

    def times(self) -> list[Timing]:
        """What the timed runs took, in order."""
        ...
