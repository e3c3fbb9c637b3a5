"""Windows side by side as one batch of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from strata.core.window import Window
from strata.kernels.views import Rows


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


class StepInputs:
    """Tokens, rows and scored rows of steps of one shape, always at the same addresses."""

    def __init__(self, shape: StepShape) -> None:
        self.tokens = torch.empty(shape.rows, dtype=torch.int64)
        """int64 [T]"""
        slot, position = (torch.empty(shape.rows, dtype=torch.int32) for _ in range(2))
        self.rows = Rows(slot, position, torch.empty(shape.windows, 3, dtype=torch.int32))
        self.scored = torch.empty(shape.scored, dtype=torch.int32)
        """Numbers of the rows that get logits, window by window."""

    def fill(self, windows: Sequence[Window]) -> None:
        """Take the step's windows; rows come in their order. They must have the shape."""
        tokens, slot, position = self.tokens.numpy(), self.rows.slot.numpy(), self.rows.position.numpy()
        segments, scored = self.rows.segments.numpy(), self.scored.numpy()
        first = found = 0
        for i, w in enumerate(windows):
            stop = first + len(w.tokens)
            tokens[first:stop] = w.tokens
            slot[first:stop] = w.slot
            position[first:stop] = range(w.start, w.end)
            segments[i] = (w.slot, first, len(w.tokens))
            scored[found : found + w.score] = range(stop - w.score, stop)
            first, found = stop, found + w.score
