"""A device on the host: the GPU's kernels compiled by the host's compiler, a block's threads as fibres (csrc/device).

For tests on machines without a GPU: it gives the GPU's bits, slowly, and it notices what a GPU would not say: a
barrier or shuffle that some threads miss, too much shared memory, an order of threads that shows in a result.
"""

from collections.abc import Callable, Sequence

import torch

from strata.kernels import _simt
from strata.kernels.branch import Branch, Serial
from strata.kernels.device import Kernel
from strata.kernels.host_program import HostProgram, Launch
from strata.kernels.prepared import Prepared
from strata.kernels.residency import Residency
from strata.kernels.shared_memory import HOST, SharedMemory
from strata.kernels.views import Weight


class HostDevice:
    """Implements `Device` on CPU tensors; `order` other than 0 runs blocks and threads in an order that it decides.

    `shared.most` may be less than kernels were compiled for; their tables and slots are those of `HOST`.

    While `recorded` is a list, launches are put there instead of run, and `kept` holds what `empty` gave meanwhile.
    """

    def __init__(self, order: int = 0, shared: SharedMemory = HOST) -> None:
        self.order = order
        self.shared = shared
        self.torch_device = torch.device("cpu")
        self.name = "host emulator"
        self.processors = 2
        self.launches = 0
        self.recorded: list[Launch] | None = None
        self.kept: list[torch.Tensor] | None = None
        self.residency = Residency(self.torch_device)
        self.prepared = Prepared()

    @property
    def resident_bytes(self) -> int:
        """See Device.resident_bytes."""
        return self.residency.nbytes

    def compile_ahead(self, units: Sequence[str]) -> None:
        """See Device.compile_ahead: the host's compiler has done so."""

    def compiled(self, units: Sequence[str], told: Callable[[int, int], None]) -> None:
        """See Device.compiled."""

    def launch(self, kernel: Kernel, grid: tuple[int, int, int], block: int, shared: int, *args: int | float) -> None:
        """See Device.launch; KeyError, TypeError or ValueError for what no kernel takes, RuntimeError for a fault."""
        self.launches += 1
        if shared > self.shared.most:
            raise ValueError(f"{kernel.name}: {shared} bytes of shared memory, a block has {self.shared.most}")
        if self.recorded is not None:
            self.recorded.append(Launch(kernel, grid, block, shared, args))
        else:
            _simt.launch(kernel.unit, kernel.name, grid, block, shared, args, self.order)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """See Device.empty."""
        made = torch.empty(shape, dtype=dtype)
        if self.kept is not None:
            self.kept.append(made)
        return made

    def resident(self, tensor: torch.Tensor) -> torch.Tensor:
        """See Device.resident."""
        return self.residency.tensor(tensor)

    def weight(self, weight: Weight) -> tuple[int, int]:
        """See Device.weight."""
        return self.residency.weight(weight)

    def leave(self, weight: Weight) -> None:
        """See Device.leave: all memory is the host's."""

    def constants(self, values: Sequence[int]) -> torch.Tensor:
        """See Device.constants."""
        return self.residency.constants(values)

    def counters(self, count: int) -> torch.Tensor:
        """See Device.counters."""
        return self.residency.counters(count)

    def program(self, timed: bool) -> HostProgram:
        """See Device.program; every program can be timed."""
        return HostProgram(self)

    def branch(self) -> Branch:
        """See Device.branch."""
        return Serial()

    def synchronize(self) -> None:
        """See Device.synchronize: every launch has ended when it returns."""
