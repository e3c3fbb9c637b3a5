"""What a runner needs to know of a device whose memory is not the host's."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from strata.kernels.ops import Ops
from strata.state.memory import Memory


def nothing() -> None:
    """For runners that share what others end."""


@dataclass(frozen=True, slots=True)
class Apart:
    """A GPU, or its emulator, as a runner sees it."""

    name: str
    """For people."""
    memory: Memory
    """Where states and the inputs of steps lie, and operations run."""
    host_ops: Ops
    """Choose from logits that were brought to the host."""
    close: Callable[[], None] = nothing
    """Ends what works beside the steps; the runner calls it at its own end."""

    def lent(self) -> "Apart":
        """The same for another runner, which ends nothing."""
        return replace(self, close=nothing)
