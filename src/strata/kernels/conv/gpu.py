"""causal_conv and carry_rows on a device (csrc/device/conv.h); bits as conv/naive.py. Slots are not checked."""

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats, held_segments, integers
from strata.kernels.views import Rows

FEW, MANY, CARRY = (Kernel("conv", name, early=True) for name in ("conv_few", "conv_many", "conv_carry"))
MOST_ROWS = 32
"""Of a step for which a channel is one thread's work."""
ROWS_EACH = 16


def causal_conv(
    device: Device, x: torch.Tensor, weight: torch.Tensor, history: torch.Tensor, rows: Rows, dilation: int
) -> torch.Tensor:
    """See Ops.causal_conv; ValueError when shapes do not fit."""
    num_rows, channels = x.shape
    taps = weight.shape[1]
    if dilation < 1 or taps < 1:
        raise ValueError(f"causal_conv: {taps} taps and dilation {dilation} must be at least 1")
    segments = rows.segments.shape[0]
    out = device.empty(num_rows, channels)
    source = floats(device, "causal_conv: x", x, (num_rows, channels))
    w = floats(device, "causal_conv: weight", device.resident(weight), (channels, taps))
    past = floats(device, "causal_conv: history", history, (history.shape[0], (taps - 1) * dilation, channels))
    runs = integers(device, "causal_conv: segments", rows.segments, (segments, 3))
    held = held_segments(device, "causal_conv", rows)
    across = blocks_for(channels)[0]
    if num_rows <= MOST_ROWS:
        device.launch(
            FEW,
            (across, segments, 1),
            THREADS,
            0,
            source,
            w,
            past,
            out.data_ptr(),
            runs,
            held,
            channels,
            taps,
            dilation,
        )
        return out
    pieces = -(-num_rows // ROWS_EACH)
    sizes = (segments, num_rows, ROWS_EACH, channels, taps, dilation)
    device.launch(MANY, (across, pieces, 1), THREADS, 0, source, w, past, out.data_ptr(), runs, *sizes)
    device.launch(CARRY, (across, segments, 1), THREADS, 0, source, past, runs, held, channels, (taps - 1) * dilation)
    return out


def carry_rows(device: Device, x: torch.Tensor, history: torch.Tensor, rows: Rows) -> None:
    """See Ops.carry_rows; ValueError when shapes do not fit."""
    (num_rows, channels), (slots, span, _), segments = x.shape, history.shape, rows.segments.shape[0]
    source = floats(device, "carry_rows: x", x, (num_rows, channels))
    past = floats(device, "carry_rows: history", history, (slots, span, channels))
    runs = integers(device, "carry_rows: segments", rows.segments, (segments, 3))
    grid = (blocks_for(channels)[0], segments, 1)
    device.launch(CARRY, grid, THREADS, 0, source, past, runs, 0, channels, span)
