"""A step program on the emulated device: the launches in order, as CUDA's capture takes them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch

from strata.core.errors import EngineError
from strata.kernels.device import Device, Kernel
from strata.kernels.marks import Marks
from strata.kernels.step_program import Timing


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch as it was asked for."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: int
    shared: int
    args: tuple[int | float, ...]


class Recording(Device, Protocol):
    """A device that keeps launches instead of running them, and tensors with them, while it has lists for both."""

    recorded: list[Launch] | None
    kept: list[torch.Tensor] | None


class HostProgram:
    """Implements `StepProgram`: launches that are recorded do not run, and what is not a launch is not recorded."""

    runs_while_recording = False

    def __init__(self, device: Recording) -> None:
        self.device = device
        self.recorded: list[Launch] = []
        self.kept: list[torch.Tensor] = []
        """Every tensor of the recording, so that none of their memory serves twice."""
        self.marks = Marks()
        self.spent: list[int] = []

    def __len__(self) -> int:
        return len(self.recorded)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """See `StepProgram.recording`; EngineError when another program records."""
        if self.device.recorded is not None:
            raise EngineError("a program is being recorded already")
        self.device.recorded, self.device.kept = self.recorded, self.kept
        try:
            yield
        finally:
            self.device.recorded = self.device.kept = None
        self.spent = [0] * len(self.recorded)

    def mark(self, part: str) -> None:
        """See `StepProgram.mark`."""
        self.marks.add(len(self), part)

    def run(self) -> None:
        """All launches in order."""
        for launch in self.recorded:
            self.launch(launch)

    def run_apart(self) -> None:
        """See `StepProgram.run_apart`."""
        self.run()

    def finish(self) -> None:
        """See `StepProgram.finish`: all that is asked of the device later comes after it."""

    def launch(self, launch: Launch) -> None:
        """One of them."""
        self.device.launch(launch.kernel, launch.grid, launch.block, launch.shared, *launch.args)

    def run_timed(self) -> None:
        """See `StepProgram.run_timed`."""
        for i, launch in enumerate(self.recorded):
            began = time.perf_counter_ns()
            self.launch(launch)
            self.spent[i] += time.perf_counter_ns() - began

    def times(self) -> list[Timing]:
        """Every launch in order, by its kernel's name."""
        return self.marks.apply([(x.kernel.name, t) for x, t in zip(self.recorded, self.spent, strict=True)])
