"""Windows side by side as one batch of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from strata.core.errors import RequestError
from strata.core.window import Window
from strata.kernels.views import Rows
from strata.state.memory import HOST, Memory


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
    """Tokens, rows and scored rows of steps of one shape, always at the same addresses.

    All are integers of one block, so that a device gets them in one copy.
    """

    def __init__(self, shape: StepShape, memory: Memory = HOST) -> None:
        small = 2 * shape.rows + 3 * shape.windows + shape.scored
        self.block = memory.mirror(shape.rows + -(-small // 2), dtype=torch.int64)
        self.host = divided(self.block.host, shape)
        tokens, slot, position, segments, scored = divided(self.block.device, shape)
        self.tokens = tokens
        """int64 [T]"""
        self.rows = Rows(slot, position, segments)
        self.scored = scored
        """Numbers of the rows that get logits, window by window."""

    def fill(self, windows: Sequence[Window]) -> None:
        """Take the step's windows; rows come in their order. They must have the shape."""
        tokens, slot, position, segments, scored = (part.numpy() for part in self.host)
        first = found = 0
        for i, w in enumerate(windows):
            stop = first + len(w.tokens)
            tokens[first:stop] = w.tokens
            slot[first:stop] = w.slot
            position[first:stop] = range(w.start, w.end)
            segments[i] = (w.slot, first, len(w.tokens))
            scored[found : found + w.score] = range(stop - w.score, stop)
            first, found = stop, found + w.score
        self.block.publish()


def divided(block: torch.Tensor, shape: StepShape) -> tuple[torch.Tensor, ...]:
    """Views of tokens int64 [T], then int32: slot [T], position [T], segments [S, 3] and scored rows [N]."""
    sizes = [shape.rows, shape.rows, 3 * shape.windows, shape.scored]
    slot, position, segments, scored = torch.split(block[shape.rows :].view(torch.int32)[: sum(sizes)], sizes)
    return block[: shape.rows], slot, position, segments.view(shape.windows, 3), scored


def check_tokens(windows: Sequence[Window], vocabulary: int) -> None:
    """RequestError when an id is outside the vocabulary: operations on a device do not look."""
    for window in windows:
        least, most = min(window.tokens), max(window.tokens)
        if least < 0 or most >= vocabulary:
            raise RequestError(f"token ids must be from 0 to {vocabulary - 1}, found {least}..{most}")
