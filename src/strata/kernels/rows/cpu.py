"""join, take_rows and completed_blocks in C++ (csrc/rows_bind.cpp); bits as rows/naive.py."""

import math
from collections.abc import Sequence

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats, integers
from strata.kernels.native import Native, describe_tensor

ViewArgs = tuple[int, list[int], list[int]]
"""Address, sizes of the last three axes, strides of all four."""

AXES = 4
"""Of a view that can be copied: rows and up to three more."""


def join(native: Native, views: Sequence[torch.Tensor]) -> torch.Tensor:
    """See Ops.join; ValueError for views of more than four axes or of different numbers of rows."""
    rows = views[0].shape[0]
    out = native.empty(rows, sum(math.prod(view.shape[1:]) for view in views))
    _native.join(native.handle, [view_of(view, rows) for view in views], out.data_ptr(), rows)
    return out


def view_of(x: torch.Tensor, rows: int) -> ViewArgs:
    """A view for C++; axes that it lacks are of size 1."""
    if x.dtype is not torch.float32 or not x.is_cpu or not 1 <= x.ndim <= AXES or x.shape[0] != rows:
        raise ValueError(f"join: expected float32 views of {rows} rows on the CPU, found {describe_tensor(x)}")
    missing = AXES - x.ndim
    sizes = list(x.shape[1:])
    row_stride, *strides = x.stride()
    return x.data_ptr(), [1] * missing + sizes, [row_stride, *[0] * missing, *strides]


def take_rows(native: Native, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """See Ops.take_rows."""
    rows, width = x.shape
    count = index.shape[0]
    out = native.empty(count, width)
    _native.take_rows(
        native.handle,
        floats("take_rows: x", x, (rows, width)),
        integers("take_rows: index", index, (count,)),
        out.data_ptr(),
        rows,
        count,
        width,
    )
    return out


def completed_blocks(native: Native, positions: torch.Tensor, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.completed_blocks; ValueError for a ratio below 1."""
    if ratio < 1:
        raise ValueError(f"completed_blocks: ratio {ratio} must be at least 1")
    count = positions.shape[0]
    blocks, starts = native.empty(count, dtype=torch.int32), native.empty(count, dtype=torch.int32)
    _native.completed_blocks(
        native.handle,
        integers("completed_blocks: positions", positions, (count,)),
        blocks.data_ptr(),
        starts.data_ptr(),
        count,
        ratio,
    )
    return blocks, starts
