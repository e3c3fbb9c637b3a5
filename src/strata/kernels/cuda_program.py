"""A step program on CUDA: one graph, replayed without the host."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch

from strata.kernels.device import Device
from strata.kernels.step_program import Timing


class GraphPool(NamedTuple):
    """Memory that all graphs of a device share for their intermediate results.

    No two of them run at once, and what a graph leaves is read before the next one runs.
    """

    handle: Any
    stream: torch.cuda.Stream
    """Where graphs are captured; they are replayed on the current stream."""
    keeper: torch.cuda.CUDAGraph
    """Keeps the pool in use: torch refuses one whose last graph went while a tensor of it lived on."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Python's collector of cycles rests: a graph that it dropped while another is captured would end the capture."""
    rests = not gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not rests:
            gc.enable()


def new_pool() -> GraphPool:
    """A pool on the current device."""
    handle, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    keeper = torch.cuda.CUDAGraph()
    one = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    with uncollected(), torch.cuda.stream(stream):
        keeper.capture_begin(pool=handle, capture_error_mode="thread_local")
        one.add_(1)  # a graph without a node is warned of
        keeper.capture_end()
    return GraphPool(handle, stream, keeper)


class CudaProgram:
    """Implements `StepProgram`. A `timed` one has event nodes at its marks."""

    runs_while_recording = False

    def __init__(self, device: Device, pool: GraphPool, timed: bool) -> None:
        self.device = device
        self.pool = pool
        self.graph = torch.cuda.CUDAGraph()
        self.timed = timed
        self.launches = 0
        self.events: list[torch.cuda.Event] = []
        self.parts: list[str] = []
        self.spent: list[float] = []

    def __len__(self) -> int:
        return self.launches

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Capture on the pool's stream; a failure leaves that stream usable."""
        torch.cuda.synchronize()
        before = self.device.launches
        with uncollected(), torch.cuda.stream(self.pool.stream):
            # Other threads may go on with their own streams meanwhile (thread_local).
            self.graph.capture_begin(pool=self.pool.handle, capture_error_mode="thread_local")
            try:
                self._event()
                yield
            except BaseException:
                with suppress(RuntimeError):
                    self.graph.capture_end()
                raise
            self.graph.capture_end()
        self.launches = self.device.launches - before

    def _event(self) -> None:
        if self.timed:
            event = torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]
            event.record()
            self.events.append(event)

    def mark(self, part: str) -> None:
        """See `StepProgram.mark`."""
        if self.timed:
            self._event()
            self.parts.append(part)
            self.spent.append(0.0)

    def run(self) -> None:
        """Replay on the current stream."""
        self.graph.replay()

    def run_apart(self) -> None:
        """See `StepProgram.run_apart`; the graph has them in order."""
        self.run()

    def finish(self) -> None:
        """See `StepProgram.finish`: all that is asked of the device later comes after it."""

    def run_timed(self) -> None:
        """Replay, wait, and add up the time between the marks."""
        self.graph.replay()
        torch.cuda.synchronize()
        for i, (before, after) in enumerate(zip(self.events, self.events[1:], strict=False)):
            self.spent[i] += before.elapsed_time(after)

    def times(self) -> list[Timing]:
        """See `StepProgram.times`; operations within a part are not told apart."""
        return [Timing(part, "", round(1e6 * ms)) for part, ms in zip(self.parts, self.spent, strict=True)]
