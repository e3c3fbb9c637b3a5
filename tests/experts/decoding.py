"""Greedy answers of the tiny models, for comparisons of placements."""

from collections.abc import Callable

import numpy as np
import torch

from models.made import ops_of, path_of, runner_of
from strata.core.window import Window
from strata.runtime.runner import DeviceRunner


def greedy(runner: DeviceRunner, prompt: list[int], steps: int) -> list[np.ndarray]:
    """Logits of the prompt's last row and of every greedy token after it."""
    logits = runner.forward([Window(0, 0, tuple(prompt), 1)])
    runner.states.commit(0, len(prompt), runner.ops)
    found = [logits[0].copy()]
    for _ in range(steps):
        window = Window(0, runner.states.length[0], (int(found[-1].argmax()),), 1)
        found.append(runner.forward([window])[0].copy())
        runner.states.commit(0, 1, runner.ops)
    return found


def silent(name: str, tensors: dict[str, torch.Tensor]) -> None:
    """A tap that takes note of nothing."""


def listening(name: str, tap: Callable[[str, dict[str, torch.Tensor]], None] = silent) -> DeviceRunner:
    """A runner that runs op by op: the emulator's launches are no part of a CPU program."""
    runner = runner_of(path_of(name, "gguf"), ops_of())
    runner.forwarder.tap = tap
    return runner
