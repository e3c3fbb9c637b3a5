"""The engine's side of a comparison: its operations as it reports them, step by step, joined into whole sequences."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from strata.checkpoint.locate import open_checkpoint
from strata.core.errors import EngineError
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.ops import Ops
from strata.models.registry import build_model
from strata.parity.forward import Taps, Tensors
from strata.runtime.apart import Apart
from strata.runtime.runner import DeviceRunner

Run = Callable[[Path, Sequence[int], Sequence[int]], tuple[Taps, npt.NDArray[np.generic]]]
"""(checkpoint, tokens, chunk sizes) -> (every operation of every step in order, logits [T, vocabulary]).

One sequence in one slot, read in consecutive windows of the given sizes, every position scored.
"""


def engine(ops: Ops, apart: Apart | None = None) -> Run:
    """The engine's runner with the given operations, on the CPU or `apart` from it."""

    def run(path: Path, tokens: Sequence[int], chunks: Sequence[int]) -> tuple[Taps, npt.NDArray[np.generic]]:
        taps: Taps = []

        def tap(name: str, tensors: dict[str, torch.Tensor]) -> None:
            # copies: states and buffers may be written again by a later step
            taps.append((name, {part: tensor.cpu().numpy().copy() for part, tensor in tensors.items()}))

        logits, start = [], 0
        with open_checkpoint(path) as checkpoint:
            limits = Limits(1, len(tokens), max(chunks))
            runner = DeviceRunner(build_model(checkpoint, ops), ops, limits, tap, apart=apart)
            for size in chunks:
                window = Window(0, start, tuple(tokens[start : start + size]), size)
                logits.append(runner.forward([window]).copy())
                runner.states.commit(0, size, ops)
                start += size
        return taps, np.concatenate(logits)

    return run


def split(count: int, chunks: Sequence[int]) -> list[int]:
    """Chunk sizes that add up to `count`: the given ones in turn, over and over."""
    if not chunks or min(chunks) < 1:
        raise ValueError(f"chunks must be positive: {list(chunks)}")
    sizes: list[int] = []
    while sum(sizes) < count:
        sizes.append(min(chunks[len(sizes) % len(chunks)], count - sum(sizes)))
    return sizes


def joined(taps: Taps, steps: int) -> tuple[dict[str, Tensors], dict[str, int]]:
    """(tensors over the whole sequence by operation, operations not reported exactly once per step and how often)."""
    parts: dict[str, list[Tensors]] = {}
    for name, tensors in taps:
        parts.setdefault(name, []).append(tensors)
    uneven = {name: len(found) for name, found in parts.items() if len(found) != steps}
    whole = {name: _concatenated(name, found) for name, found in parts.items()}
    return whole, uneven


def _concatenated(name: str, parts: list[Tensors]) -> Tensors:
    keys = parts[0].keys()
    if any(p.keys() != keys for p in parts):
        raise EngineError(f"operation {name} reports different tensors in different steps")
    return {key: np.concatenate([p[key] for p in parts]) for key in keys}
