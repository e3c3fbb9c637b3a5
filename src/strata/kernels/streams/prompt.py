"""stream_mix and stream_add_norm for the rows of a prompt (csrc/device/streams_many.h); bits as streams/naive.py."""

import torch

from strata.kernels.device import Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats
from strata.kernels.norm.gpu import NARROW_THREADS, weight_of
from strata.kernels.norm.prompt import grid_for, unit_for
from strata.kernels.streams import gpu

UNIT = "streams_many"
MIX_THREADS = 128


def stream_mix(device: Device, gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
    """See Ops.stream_mix; ValueError when shapes do not fit."""
    rows, width = x.shape
    hidden = width // max(1, streams)
    unit = unit_for(device, UNIT, hidden)
    if not unit or width % streams or not rows:
        return gpu.stream_mix(device, gate, x, streams)
    y = device.empty(rows, hidden)
    left = floats(device, "stream_mix: gate", gate, (rows, width))
    right = floats(device, "stream_mix: x", x, (rows, width))
    fours = y.numel() // 4
    grid = blocks_for(fours, MIX_THREADS)
    sizes = fours, streams, hidden
    device.launch(Kernel(unit, "stream_mix_many"), grid, MIX_THREADS, 0, left, right, y.data_ptr(), *sizes)
    return y


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
    """See Ops.stream_add_norm, for widths that norm.prompt.unit_for knows; ValueError when shapes do not fit."""
    (rows, streams), hidden = gates.shape, y.shape[1]
    total, normed = device.empty(*residual.shape), device.empty(*residual.shape)
    before = floats(device, "stream_add_norm: residual", residual, (rows, streams * hidden))
    added = floats(device, "stream_add_norm: y", y, (rows, hidden))
    opened = floats(device, "stream_add_norm: gates", gates, (rows, streams))
    length, at = weight_of(device, "stream_add_norm: weight", weight, streams * hidden, hidden)
    places, sizes = (total.data_ptr(), normed.data_ptr()), (rows * streams, streams, length)
    kernel, grid = Kernel(unit_for(device, UNIT, hidden), "stream_add_norm_many"), grid_for(rows * streams)
    numbers = float(divisor), float(factor), float(eps)
    device.launch(kernel, grid, NARROW_THREADS, 0, before, added, opened, at, *places, *sizes, *numbers)
    return total, normed
