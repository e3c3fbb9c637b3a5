"""Specification of join, take_rows and completed_blocks: copies, and integers."""

from collections.abc import Sequence

import torch

from strata.kernels.cache.naive import NO_ENTRY


def join(views: Sequence[torch.Tensor]) -> torch.Tensor:
    """See Ops.join."""
    return torch.cat([view.reshape(view.shape[0], -1) for view in views], 1)


def take_rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """See Ops.take_rows."""
    for row in index.tolist():
        if not 0 <= row < x.shape[0]:
            raise IndexError(f"row {row} of {x.shape[0]}")
    return x[index.to(torch.int64)]


def completed_blocks(positions: torch.Tensor, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.completed_blocks."""
    if ratio < 1:
        raise ValueError(f"completed_blocks: ratio {ratio} must be at least 1")
    ends = positions.to(torch.int64) + 1
    complete = ends % ratio == 0
    blocks = torch.where(complete, ends // ratio - 1, NO_ENTRY)
    return blocks.to(torch.int32), torch.where(complete, ends - ratio, 0).to(torch.int32)
