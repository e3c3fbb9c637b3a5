"""Where states and the inputs of steps lie: integers that the host writes are read by operations on a device."""

from dataclasses import dataclass

import torch

Index = int | slice | tuple[int | slice, ...]


@dataclass(frozen=True, slots=True)
class Mirror:
    """One tensor that the host writes, and the one that operations read; on the CPU they are the same."""

    host: torch.Tensor
    device: torch.Tensor

    def publish(self, at: Index = slice(None)) -> None:
        """Bring what the host wrote at `at` to the device, before every operation that is given later.

        The host must not write there again until it has waited for the device, as a step's end does.
        """
        if self.device is not self.host:
            self.device[at].copy_(self.host[at], non_blocking=True)


@dataclass(frozen=True, slots=True)
class Memory:
    """A device's memory, or the host's."""

    device: torch.device
    apart: bool
    """Whether operations read copies of what the host writes. The emulated device has them apart too, though both lie
    in the host's memory, so that a copy that is missing is seen without a GPU."""

    def mirror(self, *shape: int, dtype: torch.dtype) -> Mirror:
        """Zeros on both sides."""
        host = torch.zeros(shape, dtype=dtype, pin_memory=self.device.type == "cuda")
        return Mirror(host, torch.zeros(shape, dtype=dtype, device=self.device) if self.apart else host)

    def shared(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Zeros in the host's memory that operations read and write in place: for a few values, over the bus.

        To bring one value to a GPU or back takes the host 20 us, to read it in place takes the GPU one or two.
        """
        return torch.zeros(shape, dtype=dtype, pin_memory=self.device.type == "cuda")

    def wait(self) -> None:
        """Until the device has done all that it was given, so that the host may write mirrors again."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()


HOST = Memory(torch.device("cpu"), apart=False)
