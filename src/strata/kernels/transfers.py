"""Copies from the host to a device beside the work that is launched on it."""

from collections.abc import Callable
from typing import Protocol

import torch


class Transfer(Protocol):
    """A copy that was started."""

    def landed(self) -> bool:
        """Whether it has ended."""
        ...

    def wait(self) -> None:
        """Until it has ended."""
        ...


Transfers = Callable[[torch.Tensor, torch.Tensor], Transfer]
"""(to, source) -> the copy under way. It begins when all that was launched before has ended; what is launched later
does not wait for it. Both tensors must be left alone until it has landed."""


class Done:
    """A `Transfer` that had ended when it began."""

    def landed(self) -> bool:
        """See Transfer."""
        return True

    def wait(self) -> None:
        """See Transfer."""


def host_copy(to: torch.Tensor, source: torch.Tensor) -> Transfer:
    """`Transfers` within the host's memory."""
    to.copy_(source)
    return Done()


class EventTransfer:
    """A `Transfer` by the event behind it."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event

    def landed(self) -> bool:
        """See Transfer."""
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """See Transfer."""
        self.event.synchronize()


class StreamCopies:
    """`Transfers` on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, to: torch.Tensor, source: torch.Tensor) -> Transfer:
        """See Transfers."""
        self.stream.wait_stream(torch.cuda.current_stream(to.device))
        with torch.cuda.stream(self.stream):
            to.copy_(source, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self.stream)
        return EventTransfer(event)
