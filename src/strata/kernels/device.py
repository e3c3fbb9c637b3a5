"""What a GPU, or its emulator on the host, is to the operations: memory, and one way to start a kernel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from strata.kernels.branch import Branch
from strata.kernels.prepared import Prepared
from strata.kernels.shared_memory import SharedMemory
from strata.kernels.step_program import StepProgram
from strata.kernels.views import Weight

GROUP = 32
"""Lanes that exchange values (csrc/device/device.h)."""

THREADS = 256
"""Threads of a block where nothing asks for another number."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel by its translation unit, which is a line of csrc/device/units.txt (header and defines), and its name."""

    unit: str
    name: str
    early: bool = False
    """It may start before what was launched before it has ended; it calls `after_previous` (csrc/device/device.h)."""


class Device(Protocol):
    """A device's memory and its order of work: what is launched runs in that order, none of it waits for the host."""

    @property
    def torch_device(self) -> torch.device:
        """Where its tensors lie."""
        ...

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def processors(self) -> int:
        """Blocks that run at once, at least."""
        ...

    @property
    def shared(self) -> SharedMemory:
        """Of a block."""
        ...

    @property
    def prepared(self) -> Prepared:
        """Quantised rows of results."""
        ...

    @property
    def launches(self) -> int:
        """Kernels launched (or recorded) so far."""
        ...

    @property
    def resident_bytes(self) -> int:
        """Bytes of the copies that `resident` and `weight` hold."""
        ...

    def compile_ahead(self, units: Sequence[str]) -> None:
        """Compile these translation units beside the caller; a launch compiles what is still missing."""
        ...

    def compiled(self, units: Sequence[str], told: Callable[[int, int], None]) -> None:
        """Wait until those have been compiled, telling how many of how many; EngineError when one does not compile."""
        ...

    def launch(self, kernel: Kernel, grid: tuple[int, int, int], block: int, shared: int, *args: int | float) -> None:
        """Start a kernel: `grid` blocks of `block` threads with `shared` bytes of dynamic shared memory.

        An int is passed as 8 bytes (a count, or an address: `data_ptr()`), a float as a float32. This is the only way
        work reaches the device. The caller keeps what the addresses name alive until the work is done.
        """
        ...

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """An uninitialised tensor for a result."""
        ...

    def resident(self, tensor: torch.Tensor) -> torch.Tensor:
        """The device's copy of a host tensor, made once and kept as long as that tensor; itself if it is there."""
        ...

    def weight(self, weight: Weight) -> tuple[int, int]:
        """Addresses of the device's copies of planes[0] and planes[1] (0: none), made once, kept while `weight` is."""
        ...

    def leave(self, weight: Weight) -> None:
        """Let kernels read the weight in the host's memory, pinned, where `weight` then says that it is.

        For tables of which a step reads a few rows. EngineError when the system refuses to pin it.
        """
        ...

    def constants(self, values: Sequence[int]) -> torch.Tensor:
        """An int64 tensor of these values on the device, made once for equal ones."""
        ...

    def counters(self, count: int) -> torch.Tensor:
        """At least `count` int32 zeros, which whoever is given them leaves as zeros; made once for equal counts."""
        ...

    def program(self, timed: bool) -> StepProgram:
        """An empty program that records launches, with what it takes to time it."""
        ...

    def branch(self) -> Branch:
        """Launches that may run beside those that follow."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was launched is done."""
        ...


def blocks_for(count: int, each: int = THREADS) -> tuple[int, int, int]:
    """A one-dimensional grid of blocks of `each` for `count` elements; at least one block."""
    return max(1, -(-count // each)), 1, 1
