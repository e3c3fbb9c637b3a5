"""A step program on the CPU: the same operations on the same addresses, without Python between them.

While a program records, every operation runs and is kept; what it allocates comes from the program's own memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from strata.core.errors import EngineError
from strata.kernels import _native
from strata.kernels.buffers import Buffers
from strata.kernels.marks import Marks
from strata.kernels.native import Native
from strata.kernels.step_program import Timing


class Program:
    """Implements `StepProgram` on C++ operations."""

    runs_while_recording = True

    def __init__(self, native: Native) -> None:
        self.native = native
        self.handle = _native.Program()
        self.buffers = Buffers()
        self.marks = Marks()

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

    def mark(self, part: str) -> None:
        """See `StepProgram.mark`."""
        self.marks.add(len(self), part)

    def run(self) -> None:
        """All operations in order; what one raises ends the run."""
        self.handle.run(self.native.handle)

    def run_timed(self) -> None:
        """`run`, and the time of each operation is added up."""
        self.handle.run_timed(self.native.handle)

    def times(self) -> list[Timing]:
        """Every operation in order."""
        return self.marks.apply(self.handle.times())
