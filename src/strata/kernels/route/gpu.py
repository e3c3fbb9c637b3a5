"""route on a device (csrc/device/route.h); bits as route/naive.py."""

import torch

from strata.kernels.device import THREADS, Device, Kernel
from strata.kernels.device_addresses import floats

ROUTE = Kernel("route", "route", early=True)


def route(device: Device, logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.route; ValueError when top_k is outside 1 .. E."""
    num_rows, num_experts = logits.shape
    if not 1 <= top_k <= num_experts:
        raise ValueError(f"route: top_k {top_k} is outside 1 .. {num_experts} experts")
    ids = device.empty(num_rows, top_k, dtype=torch.int32)
    weights = device.empty(num_rows, top_k)
    device.launch(
        ROUTE,
        (num_rows, 1, 1),
        THREADS,
        8 * num_experts + 4 * top_k,
        floats(device, "route: logits", logits, (num_rows, num_experts)),
        ids.data_ptr(),
        weights.data_ptr(),
        num_experts,
        top_k,
        int(renormalise),
    )
    return ids, weights
