"""low_rank_mix on a device (csrc/device/low_rank.h); bits as kernels/joined.py."""

import torch

from strata.kernels.device import GROUP, Device, Kernel
from strata.kernels.device_addresses import floats
from strata.kernels.linear.launch import beside
from strata.kernels.views import Weight

FORMATS = ("F32", "F16", "BF16")
"""Of the up matrix; others are products of their own."""
STREAMS, COLUMNS = 4, 32
"""Of a block, whose lines of the matrix are kept in shared memory."""
THREADS = 512
TOGETHER = 4
"""Rows of x that are done together where there are several."""


def shared_bytes(up: Weight, together: int) -> int:
    """Dynamic shared memory of a block: its lines, in steps of 64 modulo 128, and the rows of its input."""
    step = (up.format.row_bytes(up.cols) + 63) // 128 * 128 + 64
    return STREAMS * COLUMNS * step + 4 * together * up.cols


def fits(device: Device, up: Weight, streams: int) -> bool:
    """Whether the kernel takes this matrix [streams * H, rank]."""
    return (
        up.format.name in FORMATS
        and streams == STREAMS
        and up.rows % (STREAMS * COLUMNS) == 0
        and up.cols % GROUP == 0
        and shared_bytes(up, TOGETHER) <= device.shared.dynamic
        and device.weight(up)[0] % 16 == 0
    )


def low_rank_mix(device: Device, low: torch.Tensor, up: Weight, x: torch.Tensor, streams: int) -> torch.Tensor:
    """See Ops.low_rank_mix, for a matrix that `fits`; ValueError when shapes do not fit."""
    rows, hidden = len(x), up.rows // streams
    known = (
        floats(device, "low_rank_mix: low", low, (rows, up.cols)),
        device.weight(up)[0],
        floats(device, "low_rank_mix: x", x, (rows, up.rows)),
    )
    y, together = device.empty(rows, hidden), 1 if rows == 1 else TOGETHER
    places, sizes = (y.data_ptr(), *beside(device, y)), (rows, up.cols, hidden, float(streams), up.scale)
    if rows:
        kernel = Kernel(f"low_rank STRATA_FORMAT={up.format.name}", f"low_rank_mix_{together}", early=True)
        shared = max(device.shared.alone, shared_bytes(up, together))
        device.launch(kernel, (hidden // COLUMNS, 1, 1), THREADS, shared, *known, *places, *sizes)
    return y
