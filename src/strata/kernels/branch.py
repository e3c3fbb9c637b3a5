"""Work of a step that may go on beside the work that is asked for after it."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Branch(Protocol):
    """One branch. What it is given must live until `join`, and its results may be used after that only."""

    def work(self) -> AbstractContextManager[object]:
        """What is asked for within this block belongs to the branch; it may use all that was asked for before."""
        ...

    def join(self) -> None:
        """What is asked for from now on comes after the branch."""
        ...


class Serial:
    """Implements `Branch` where everything is done in the order in which it is asked for."""

    def work(self) -> AbstractContextManager[object]:
        """See Branch.work."""
        return nullcontext()

    def join(self) -> None:
        """See Branch.join."""
