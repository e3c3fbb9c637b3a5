"""stream_mix and stream_add on a device (csrc/device/streams.h); bits as streams/naive.py."""

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats

MIX, ADD = Kernel("streams", "stream_mix"), Kernel("streams", "stream_add")


def stream_mix(device: Device, gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
    """See Ops.stream_mix; ValueError when shapes do not fit."""
    rows, width = x.shape
    if streams < 1 or width % streams:
        raise ValueError(f"stream_mix: {width} values do not hold {streams} streams")
    hidden = width // streams
    y = device.empty(rows, hidden)
    left = floats(device, "stream_mix: gate", gate, (rows, width))
    right = floats(device, "stream_mix: x", x, (rows, width))
    device.launch(MIX, blocks_for(y.numel()), THREADS, 0, left, right, y.data_ptr(), y.numel(), streams, hidden)
    return y


def stream_add(device: Device, residual: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """See Ops.stream_add; ValueError when shapes do not fit."""
    rows, streams = weights.shape
    hidden = y.shape[1]
    out = device.empty(*residual.shape)
    device.launch(
        ADD,
        blocks_for(out.numel()),
        THREADS,
        0,
        floats(device, "stream_add: residual", residual, (rows, streams * hidden)),
        floats(device, "stream_add: y", y, (rows, hidden)),
        floats(device, "stream_add: weights", weights, (rows, streams)),
        out.data_ptr(),
        out.numel(),
        streams,
        hidden,
    )
    return out
