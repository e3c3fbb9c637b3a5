"""rope and rope_angles on a device (csrc/device/rope.h); bits as rope/naive.py."""

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import address, floats, integers
from strata.kernels.ops import RopeLayout

ROPE: dict[RopeLayout, Kernel] = {
    "halves": Kernel("rope", "rope_halves", early=True),
    "pairs": Kernel("rope", "rope_pairs", early=True),
}
ANGLES = Kernel("rope", "rope_angles")


def rope(device: Device, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
    """See Ops.rope; ValueError when shapes do not fit."""
    rows, heads, dim = x.shape
    half = cos.shape[-1]
    if 2 * half > dim or layout not in ROPE:
        raise ValueError(f"rope: layout {layout!r} and {half} angles do not fit heads of {dim}")
    y = device.empty(*x.shape)
    count = rows * heads
    device.launch(
        ROPE[layout],
        blocks_for(count * ((dim + 1) // 2)),
        THREADS,
        0,
        floats(device, "rope: x", x, x.shape),
        floats(device, "rope: cos", cos, (rows, half)),
        floats(device, "rope: sin", sin, (rows, half)),
        y.data_ptr(),
        count,
        heads,
        dim,
        half,
    )
    return y


def rope_angles(
    device: Device, positions: torch.Tensor, frequencies: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.rope_angles; ValueError when the frequencies are not float64."""
    rows, half = positions.shape[0], frequencies.shape[0]
    cos, sin = device.empty(rows, half), device.empty(rows, half)
    count = rows * half
    at = integers(device, "rope_angles: positions", positions, (rows,))
    by = address(device, "rope_angles: frequencies", device.resident(frequencies), torch.float64, (half,))
    device.launch(ANGLES, blocks_for(count), THREADS, 0, at, by, cos.data_ptr(), sin.data_ptr(), count, half)
    return cos, sin
