"""Copies from the host to a device beside the work that is launched on it."""

from collections.abc import Sequence
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

    def before_launches(self) -> None:
        """Let what is launched from now on begin when it has ended; the host does not wait."""
        ...


Pair = tuple[torch.Tensor, torch.Tensor]
"""(to, source)"""


class Transfers(Protocol):
    """Copies under way. They begin when all that was launched before has ended; what is launched later does not wait.

    All tensors must be left alone until they have landed.
    """

    def __call__(self, to: torch.Tensor, source: torch.Tensor) -> Transfer:
        """One copy."""
        ...

    def all(self, pairs: Sequence[Pair]) -> Transfer:
        """Several, one after the other."""
        ...


class Done:
    """A `Transfer` that had ended when it began."""

    def landed(self) -> bool:
        """See Transfer."""
        return True

    def wait(self) -> None:
        """See Transfer."""

    def before_launches(self) -> None:
        """See Transfer."""


class HostCopies:
    """`Transfers` within the host's memory."""

    def __call__(self, to: torch.Tensor, source: torch.Tensor) -> Transfer:
        """See Transfers."""
        return self.all([(to, source)])

    def all(self, pairs: Sequence[Pair]) -> Transfer:
        """See Transfers."""
        for to, source in pairs:
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

    def before_launches(self) -> None:
        """See Transfer."""
        torch.cuda.current_stream().wait_event(self.event)


class StreamCopies:
    """`Transfers` on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, to: torch.Tensor, source: torch.Tensor) -> Transfer:
        """See Transfers."""
        return self.all([(to, source)])

    def all(self, pairs: Sequence[Pair]) -> Transfer:
        """See Transfers."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self.stream)
        return EventTransfer(event)
