"""Windows side by side as one batch of rows."""

from collections.abc import Sequence

import torch

from strata.core.window import Window
from strata.kernels.views import Rows


def pack(windows: Sequence[Window]) -> tuple[torch.Tensor, Rows]:
    """(tokens int64 [T], where each row belongs); rows come in the order of the windows."""
    tokens = [t for w in windows for t in w.tokens]
    slots = [w.slot for w in windows for _ in w.tokens]
    positions = [p for w in windows for p in range(w.start, w.end)]
    segments, first = [], 0
    for w in windows:
        segments.append((w.slot, first, len(w.tokens)))
        first += len(w.tokens)
    rows = Rows(
        slot=torch.tensor(slots, dtype=torch.int32),
        position=torch.tensor(positions, dtype=torch.int32),
        segments=torch.tensor(segments, dtype=torch.int32).view(-1, 3),
    )
    return torch.tensor(tokens, dtype=torch.int64), rows


def scored_rows(windows: Sequence[Window]) -> list[int]:
    """Row numbers that get logits, window by window."""
    found: list[int] = []
    first = 0
    for w in windows:
        stop = first + len(w.tokens)
        found.extend(range(stop - w.score, stop))
        first = stop
    return found
