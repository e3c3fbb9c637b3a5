"""activate on a device (csrc/device/activate.h); bits as activate/naive.py."""

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats
from strata.kernels.ops import Activation

KINDS: tuple[Activation, ...] = ("silu", "sigmoid", "softplus", "exp")
ACTIVATE = {kind: Kernel("activate", f"activate_{kind}", early=True) for kind in KINDS}


def activate(
    device: Device, kind: Activation, x: torch.Tensor, divisor: float = 1.0, factor: float = 1.0
) -> torch.Tensor:
    """See Ops.activate."""
    out = device.empty(*x.shape)
    count, at = out.numel(), floats(device, "activate: x", x, x.shape)
    numbers = float(divisor), float(factor)
    device.launch(ACTIVATE[kind], blocks_for(count), THREADS, 0, at, *numbers, out.data_ptr(), count)
    return out
