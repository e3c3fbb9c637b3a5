"""A step recorded once and run again: the same operations on the same addresses, without Python between them.

While a program records, every operation runs and is kept; what it allocates comes from the program's own memory. What
an operation reads must be made by an operation of the same program, or outlive the program (weights, states, inputs).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from strata.core.errors import EngineError
from strata.kernels import _native
from strata.kernels.buffers import Buffers
from strata.kernels.native import Native


class Program:
    """The recorded operations and their memory."""

    def __init__(self, native: Native) -> None:
        self.native = native
        self.handle = _native.Program()
        self.buffers = Buffers()

    def __len__(self) -> int:
        return len(self.handle)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Every operation on the `Native` object is kept until the block ends; EngineError when one records already."""
        if self.native.buffers is not None:
            raise EngineError("a program is being recorded already")
        self.native.buffers = self.buffers
        self.handle.begin(self.native.handle)
        try:
            yield
        finally:
            self.handle.end(self.native.handle)
            self.native.buffers = None

    def run(self) -> None:
        """All operations in order; what one raises ends the run."""
        self.handle.run(self.native.handle)

    def run_timed(self) -> None:
        """`run`, and the time of each operation is added up."""
        self.handle.run_timed(self.native.handle)

    def times(self) -> list[tuple[str, int]]:
        """(operation, nanoseconds in all timed runs) in order."""
        return self.handle.times()
