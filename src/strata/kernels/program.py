"""A step program on the CPU: the same operations on the same addresses, without Python between them.

While a program records, every operation runs and is kept; what it allocates comes from the workspace.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from strata.core.errors import EngineError
from strata.kernels import _native
from strata.kernels.buffers import OWN_PAGES, Blocks, Buffers
from strata.kernels.marks import Marks
from strata.kernels.native import Native
from strata.kernels.step_program import Timing


@contextmanager
def lending(native: Native, blocks: Blocks, least: int = 0) -> Iterator[None]:
    """Results of `least` bytes or more lie on the blocks until the block of code ends.

    EngineError when those of another step still do.
    """
    if native.buffers is not None:
        raise EngineError("a step is being run or recorded already")
    native.buffers = Buffers(blocks, least)
    try:
        yield
    finally:
        native.buffers = None


class NativeWorkspace:
    """Implements `Workspace` on C++ operations."""

    def __init__(self, native: Native) -> None:
        self.native = native
        self.blocks = Blocks()

    @property
    def nbytes(self) -> int:
        """See `Workspace.nbytes`."""
        return self.blocks.nbytes

    def step(self) -> AbstractContextManager[None]:
        """See `Workspace.step`; the heap is quicker with what is small, and gives its place to the next at once."""
        return lending(self.native, self.blocks, OWN_PAGES)

    def program(self, timed: bool = False) -> "Program":
        """See `Workspace.program`; every program can be timed."""
        return Program(self.native, self.blocks)


class Program:
    """Implements `StepProgram` on C++ operations."""

    runs_while_recording = True

    def __init__(self, native: Native, blocks: Blocks) -> None:
        """It runs on `blocks` whenever it runs, and so it keeps them."""
        self.native = native
        self.blocks = blocks
        self.handle = _native.Program()
        self.marks = Marks()

    def __len__(self) -> int:
        return len(self.handle)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Every operation on the `Native` object is kept until the block ends; EngineError when one records already."""
        with lending(self.native, self.blocks):
            self.handle.begin(self.native.handle)
            try:
                yield
            finally:
                self.handle.end(self.native.handle)

    def mark(self, part: str) -> None:
        """See `StepProgram.mark`."""
        self.marks.add(len(self), part)

    def run(self) -> None:
        """All operations in order; what one raises ends the run."""
        self.handle.run(self.native.handle)

    def run_apart(self) -> None:
        """See `StepProgram.run_apart`: each operation whole on one thread, the caller's only from `finish` on."""
        self.handle.run_apart(self.native.handle)

    def finish(self) -> None:
        """See `StepProgram.finish`; what an operation raised comes out here or with the threads' next job."""
        self.handle.finish(self.native.handle)

    def run_timed(self) -> None:
        """`run`, and the time of each operation is added up."""
        self.handle.run_timed(self.native.handle)

    def times(self) -> list[Timing]:
        """Every operation in order."""
        return self.marks.apply(self.handle.times())
