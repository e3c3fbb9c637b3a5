"""stream_mix and stream_add on a device (csrc/device/streams.h); bits as streams/naive.py."""

import torch

from strata.kernels.device import Device, Kernel
from strata.kernels.device_addresses import floats
from strata.kernels.linear.launch import beside
from strata.kernels.norm.gpu import weight_of, wide_threads

MIX, ADD = (Kernel("streams", name, early=True) for name in ("stream_mix", "stream_add"))
ADD_NORM = Kernel("streams_norm", "stream_add_norm", early=True)
COLUMNS = 64
"""Elements of a block: few, so that one row's blocks spread over processors."""
MANY, MANY_THREADS = 1024, 256
"""Rows of a prompt: a block does all of a stream's row, and works out its strength once."""


def grid_of(rows: int, hidden: int) -> tuple[int, int, int]:
    """Blocks for every element of `rows` rows."""
    return rows, max(1, -(-hidden // COLUMNS)), 1


def stream_mix(device: Device, gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
    """See Ops.stream_mix; ValueError when shapes do not fit."""
    rows, width = x.shape
    if streams < 1 or width % streams:
        raise ValueError(f"stream_mix: {width} values do not hold {streams} streams")
    hidden = width // streams
    y = device.empty(rows, hidden)
    left = floats(device, "stream_mix: gate", gate, (rows, width))
    right = floats(device, "stream_mix: x", x, (rows, width))
    places = y.data_ptr(), *beside(device, y)
    if rows:
        device.launch(MIX, grid_of(rows, hidden), COLUMNS, 0, left, right, *places, streams, hidden)
    return y


def stream_add(
    device: Device, residual: torch.Tensor, y: torch.Tensor, gates: torch.Tensor, divisor: float, factor: float
) -> torch.Tensor:
    """See Ops.stream_add; ValueError when shapes do not fit."""
    rows, streams = gates.shape
    hidden = y.shape[1]
    out = device.empty(*residual.shape)
    before = floats(device, "stream_add: residual", residual, (rows, streams * hidden))
    added = floats(device, "stream_add: y", y, (rows, hidden))
    opened = floats(device, "stream_add: gates", gates, (rows, streams))
    numbers = float(divisor), float(factor)
    if rows:
        many = rows >= MANY
        grid, threads = ((rows * streams, 1, 1), MANY_THREADS) if many else (grid_of(rows * streams, hidden), COLUMNS)
        sizes = streams, hidden, grid[1] * threads
        device.launch(ADD, grid, threads, 0, before, added, opened, *numbers, out.data_ptr(), *sizes)
    return out


def stream_add_norm(
    device: Device,
    residual: torch.Tensor,
    y: torch.Tensor,
    gates: torch.Tensor,
    divisor: float,
    factor: float,
    weight: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.stream_add_norm, for widths that norm.gpu.adds names; ValueError when shapes do not fit."""
    (rows, streams), hidden = gates.shape, y.shape[1]
    total, normed = device.empty(*residual.shape), device.empty(*residual.shape)
    before = floats(device, "stream_add_norm: residual", residual, (rows, streams * hidden))
    added = floats(device, "stream_add_norm: y", y, (rows, hidden))
    opened = floats(device, "stream_add_norm: gates", gates, (rows, streams))
    length, at = weight_of(device, "stream_add_norm: weight", weight, streams * hidden, hidden)
    places, sizes = (total.data_ptr(), normed.data_ptr()), (streams, hidden, length)
    numbers = float(divisor), float(factor), float(eps)
    if rows:
        grid, threads = (rows * streams, 1, 1), wide_threads(hidden)
        device.launch(ADD_NORM, grid, threads, 4 * hidden, before, added, opened, at, *places, *sizes, *numbers)
    return total, normed
