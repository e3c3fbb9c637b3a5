"""Windows side by side as one batch of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from strata.core.errors import RequestError
from strata.core.window import Window
from strata.kernels.views import DrawRows, Rows
from strata.state.memory import HOST, Memory

FEW = 8
"""Rows of a window that are written one by one."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """What decides which operations a step is made of; all else is in the memory that they read."""

    rows: int
    windows: int
    scored: int
    journaling: bool

    @classmethod
    def of(cls, windows: Sequence[Window], journaling: bool) -> "StepShape":
        """The shape of a step."""
        return cls(sum(len(w.tokens) for w in windows), len(windows), sum(w.score for w in windows), journaling)


class Wish(NamedTuple):
    """How the token after one scored row is chosen, where the device does it."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    uniform: float


class Parts(NamedTuple):
    """Everything a step reads, as views of one block."""

    tokens: torch.Tensor
    """int64 [T]"""
    rows: Rows
    scored: torch.Tensor
    """int32 [N]: numbers of the rows that get logits, window by window."""
    draws: DrawRows


class StepInputs:
    """Inputs of steps of one shape, always at the same addresses, and on a device brought there in one copy."""

    def __init__(self, shape: StepShape, memory: Memory = HOST) -> None:
        small = 2 * shape.rows + (3 + shape.journaling) * shape.windows + 3 * shape.scored
        self.block = memory.mirror(shape.rows + 3 * shape.scored + -(-small // 2), dtype=torch.int64)
        drawn = memory.shared(shape.scored, dtype=torch.int32)
        self.host = divided(self.block.host, shape, drawn)
        self.tokens, self.rows, self.scored, self.draws = divided(self.block.device, shape, drawn)
        rows, held = self.host.rows, self.host.rows.held
        self.columns = (self.host.tokens.numpy(), rows.slot.numpy(), rows.position.numpy())
        """What `fill` writes to of every row, and below of every window and scored row."""
        self.segments, self.held = rows.segments.numpy(), None if held is None else held.numpy()
        self.scored_rows = self.host.scored.numpy()
        self.wished = [getattr(self.host.draws, name).numpy() for name in Wish._fields]

    def fill(self, windows: Sequence[Window], wishes: Sequence[Wish] = (), held: Sequence[bool] = ()) -> None:
        """Take the step's windows; rows come in their order. They must have the shape; `wishes` are of scored rows,
        `held` of windows, where the step is journaled.
        """
        (tokens, slot, position), segments, scored = self.columns, self.segments, self.scored_rows
        first = found = 0
        for i, w in enumerate(windows):
            stop = first + len(w.tokens)
            if len(w.tokens) <= FEW:  # numpy's own loops take longer to begin than this takes
                for row, token in enumerate(w.tokens, first):
                    tokens[row], slot[row], position[row] = token, w.slot, w.start + row - first
            else:
                tokens[first:stop], slot[first:stop] = w.tokens, w.slot
                position[first:stop] = np.arange(w.start, w.end)
            segments[i, 0], segments[i, 1], segments[i, 2] = w.slot, first, len(w.tokens)
            for row in range(stop - w.score, stop):
                scored[found] = row
                found += 1
            first = stop
        if self.held is not None:
            self.held[:] = held
        for column, values in zip(self.wished, zip(*wishes, strict=True), strict=False):
            column[:] = values
        self.block.publish()


def divided(block: torch.Tensor, shape: StepShape, drawn: torch.Tensor) -> Parts:
    """Views of a block of int64: what takes eight bytes first, then what takes four. Tokens go to `drawn`."""
    n = shape.scored
    tokens, top_p, min_p, uniform, rest = torch.split(block, [shape.rows, n, n, n, len(block) - shape.rows - 3 * n])
    sizes = [shape.rows, shape.rows, 3 * shape.windows, shape.journaling * shape.windows, n, n, n]
    parts = torch.split(rest.view(torch.int32)[: sum(sizes)], sizes)
    slot, position, segments, held, scored, top_k, temperature = parts
    top_p, min_p, uniform = (part.view(torch.float64) for part in (top_p, min_p, uniform))
    draws = DrawRows(temperature.view(torch.float32), top_k, top_p, min_p, uniform, drawn)
    rows = Rows(slot, position, segments.view(shape.windows, 3), held if shape.journaling else None)
    return Parts(tokens, rows, scored, draws)


def check_tokens(windows: Sequence[Window], vocabulary: int) -> None:
    """RequestError when an id is outside the vocabulary: operations on a device do not look."""
    for window in windows:
        least, most = min(window.tokens), max(window.tokens)
        if least < 0 or most >= vocabulary:
            raise RequestError(f"token ids must be from 0 to {vocabulary - 1}, found {least}..{most}")
