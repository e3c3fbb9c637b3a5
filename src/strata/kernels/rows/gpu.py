"""join, take_rows and completed_blocks on a device (csrc/device/rows.h); bits as rows/naive.py.

Kernels check no index: what `take_rows` is given was checked when the step was made.
"""

import math
from collections.abc import Sequence

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats, integers
from strata.kernels.native import describe_tensor

JOIN, TAKE, COMPLETED = (Kernel("rows", name) for name in ("join_view", "take_rows", "completed_blocks"))
AXES = 4
"""Of a view that can be copied: rows and up to three more."""


def join(device: Device, views: Sequence[torch.Tensor]) -> torch.Tensor:
    """See Ops.join; ValueError for views of more than four axes or of different numbers of rows."""
    rows = views[0].shape[0]
    widths = [math.prod(view.shape[1:]) for view in views]
    out = device.empty(rows, sum(widths))
    at = out.data_ptr()
    for view, width in zip(views, widths, strict=True):
        check_view(device, view, rows)
        missing, count = AXES - view.ndim, rows * width
        sizes = [1] * missing + list(view.shape[1:])
        row_step, *steps = view.stride()
        steps = [0] * missing + steps
        device.launch(
            JOIN, blocks_for(count), THREADS, 0, view.data_ptr(), at, count, out.shape[1], *sizes, row_step, *steps
        )
        at += 4 * width
    return out


def check_view(device: Device, x: torch.Tensor, rows: int) -> None:
    """ValueError for what `join` cannot copy."""
    if x.dtype is not torch.float32 or x.device != device.torch_device or not 1 <= x.ndim <= AXES or len(x) != rows:
        where = f"on {device.torch_device}"
        raise ValueError(
            f"join: expected float32 views of {rows} rows {where}, found {describe_tensor(x)} on {x.device}"
        )


def take_rows(device: Device, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """See Ops.take_rows; an index out of range is not noticed."""
    rows, width = x.shape
    count = index.shape[0]
    out = device.empty(count, width)
    source = floats(device, "take_rows: x", x, (rows, width))
    at = integers(device, "take_rows: index", index, (count,))
    device.launch(TAKE, blocks_for(out.numel()), THREADS, 0, source, at, out.data_ptr(), out.numel(), width)
    return out


def completed_blocks(device: Device, positions: torch.Tensor, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.completed_blocks; ValueError for a ratio below 1."""
    if ratio < 1:
        raise ValueError(f"completed_blocks: ratio {ratio} must be at least 1")
    count = positions.shape[0]
    blocks, starts = device.empty(count, dtype=torch.int32), device.empty(count, dtype=torch.int32)
    at = integers(device, "completed_blocks: positions", positions, (count,))
    device.launch(COMPLETED, blocks_for(count), THREADS, 0, at, blocks.data_ptr(), starts.data_ptr(), count, ratio)
    return blocks, starts
