"""delta_inputs on a device (csrc/device/delta_inputs.h); bits as kernels/joined.py. Slots are not checked."""

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats, held_segments, integers
from strata.kernels.views import Rows

INPUTS = Kernel("delta_inputs", "delta_inputs", early=True)
TAPS = 4
"""Of the convolutions that the kernel knows."""


def delta_inputs(
    device: Device,
    x: torch.Tensor,
    weight: torch.Tensor,
    history: torch.Tensor,
    rows: Rows,
    b: torch.Tensor,
    a: torch.Tensor,
    rate: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See Ops.delta_inputs, for a convolution of four taps; ValueError when shapes do not fit."""
    (num_rows, channels), heads, segments = x.shape, b.shape[1], rows.segments.shape[0]
    qkv, beta, decay = device.empty(num_rows, channels), device.empty(num_rows, heads), device.empty(num_rows, heads)
    taps, per_head = device.resident(weight), [device.resident(each) for each in (rate, bias)]
    device.launch(
        INPUTS,
        (blocks_for(channels)[0] + 1, segments, 1),
        THREADS,
        0,
        floats(device, "delta_inputs: x", x, (num_rows, channels)),
        floats(device, "delta_inputs: weight", taps, (channels, TAPS)),
        floats(device, "delta_inputs: history", history, (history.shape[0], TAPS - 1, channels)),
        qkv.data_ptr(),
        *(floats(device, f"delta_inputs: {name}", each, (num_rows, heads)) for name, each in (("b", b), ("a", a))),
        *(floats(device, "delta_inputs: rate and bias", each, (heads,)) for each in per_head),
        beta.data_ptr(),
        decay.data_ptr(),
        integers(device, "delta_inputs: segments", rows.segments, (segments, 3)),
        held_segments(device, "delta_inputs", rows),
        channels,
        heads,
    )
    return qkv, beta, decay
