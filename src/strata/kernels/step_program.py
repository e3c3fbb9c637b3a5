"""A step that is recorded once and run again: what every kind of operations offers for it.

The operations of a program read and write the same addresses whenever it runs, so a step's inputs are written to where
they were. What an operation reads must be made by an operation of the same program, or outlive the program (weights,
states, inputs).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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

    def run_apart(self) -> None:
        """All operations in any order or at once, perhaps still running when this returns: until `finish`.

        None may read or write what another writes, and until then the program has to live, and nobody may touch what
        they read or write.
        """
        ...

    def finish(self) -> None:
        """What `run_apart` began is done, for whoever asks in the order of operations."""
        ...

    def run_timed(self) -> None:
        """`run` to its end, and the time of everything is added up."""
        ...

    def times(self) -> list[Timing]:
        """What the timed runs took, in order."""
        ...


class Workspace(Protocol):
    """Memory for the results of steps of which one runs at a time, and all of whose results are read before the next.

    Recorded ones and others share it, so that it is as large as the largest of them needs, however many there are.
    """

    @property
    def nbytes(self) -> int:
        """Bytes of the host's memory that it holds; 0 where another allocator keeps them."""
        ...

    def step(self) -> AbstractContextManager[None]:
        """A step op by op: what operations make until the block ends lies here."""
        ...

    def program(self, timed: bool = False) -> StepProgram | None:
        """An empty program that records a step, with what it takes to time it; None where nothing can."""
        ...


class Unshared:
    """Implements `Workspace` where operations find memory by themselves."""

    nbytes = 0

    def __init__(self, program: Callable[[bool], StepProgram | None] = lambda timed: None) -> None:
        self.make = program

    def step(self) -> AbstractContextManager[None]:
        """See `Workspace.step`."""
        return nullcontext()

    def program(self, timed: bool = False) -> StepProgram | None:
        """See `Workspace.program`."""
        return self.make(timed)
