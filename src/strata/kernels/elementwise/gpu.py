"""Elementwise arithmetic on a device (csrc/device/elementwise.h, activate.h); bits as elementwise/naive.py."""

import torch

from strata.kernels.activate.gpu import KINDS
from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats
from strata.kernels.linear.launch import beside
from strata.kernels.ops import Activation

ADD, DIVIDE, MULTIPLY, SIGNED_ROOT, DELTA_RATES, SPREAD = (
    Kernel("elementwise", name, early=True)
    for name in ("add", "divide", "multiply", "signed_root", "delta_rates", "spread")
)
GATE = {kind: Kernel("activate", f"gate_{kind}", early=True) for kind in KINDS}
GATE_HEADS = {kind: Kernel("activate", f"gate_heads_{kind}", early=True) for kind in KINDS}


def add(device: Device, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """See Ops.add; ValueError when the shapes differ."""
    out = device.empty(*x.shape)
    count = out.numel()
    left, right = floats(device, "add: x", x, x.shape), floats(device, "add: y", y, x.shape)
    device.launch(ADD, blocks_for(count), THREADS, 0, left, right, out.data_ptr(), count)
    return out


def divide(device: Device, x: torch.Tensor, by: float) -> torch.Tensor:
    """See Ops.divide."""
    return with_number(device, DIVIDE, x, by)


def multiply(device: Device, x: torch.Tensor, by: float) -> torch.Tensor:
    """See Ops.multiply."""
    return with_number(device, MULTIPLY, x, by)


def with_number(device: Device, kernel: Kernel, x: torch.Tensor, number: float) -> torch.Tensor:
    """An elementwise kernel of a tensor and one number."""
    out = device.empty(*x.shape)
    count, at = out.numel(), floats(device, f"{kernel.name}: x", x, x.shape)
    device.launch(kernel, blocks_for(count), THREADS, 0, at, float(number), out.data_ptr(), count)
    return out


def gate(device: Device, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """See Ops.gate; ValueError when the shapes differ."""
    out = device.empty(*x.shape)
    count = out.numel()
    left, right = floats(device, "gate: g", g, x.shape), floats(device, "gate: x", x, x.shape)
    places = out.data_ptr(), *beside(device, out)
    device.launch(GATE[kind], blocks_for(count), THREADS, 0, left, right, *places, count, max(1, out.shape[-1]))
    return out


def gate_heads(device: Device, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """See Ops.gate_heads; ValueError when the shapes differ, or a head's gates are no neighbours."""
    rows, heads, dim = x.shape
    if g.shape != x.shape or (g.stride(2) != 1 and dim > 1) or g.dtype is not torch.float32 or g.device != x.device:
        raise ValueError(
            f"gate_heads: gates {tuple(g.shape)} by {g.stride()}, of {g.dtype}, do not fit {tuple(x.shape)}"
        )
    out = device.empty(rows, heads * dim)
    count, values = out.numel(), floats(device, "gate_heads: x", x, x.shape)
    places = out.data_ptr(), *beside(device, out)
    sizes = (count, max(1, heads * dim), max(1, dim), g.stride(0), g.stride(1))
    device.launch(GATE_HEADS[kind], blocks_for(count), THREADS, 0, g.data_ptr(), values, *places, *sizes)
    return out


def signed_root(device: Device, x: torch.Tensor, least: float) -> torch.Tensor:
    """See Ops.signed_root."""
    return with_number(device, SIGNED_ROOT, x, least)


def delta_rates(
    device: Device, b: torch.Tensor, a: torch.Tensor, rate: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.delta_rates; ValueError when shapes do not fit."""
    rows, heads = b.shape
    beta, decay = device.empty(rows, heads), device.empty(rows, heads)
    count = rows * heads
    device.launch(
        DELTA_RATES,
        blocks_for(count),
        THREADS,
        0,
        floats(device, "delta_rates: b", b, (rows, heads)),
        floats(device, "delta_rates: a", a, (rows, heads)),
        floats(device, "delta_rates: rate", device.resident(rate), (heads,)),
        floats(device, "delta_rates: bias", device.resident(bias), (heads,)),
        beta.data_ptr(),
        decay.data_ptr(),
        count,
        heads,
    )
    return beta, decay


def spread(device: Device, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """See Ops.spread; ValueError when the numbers of rows differ."""
    rows, streams = weights.shape
    hidden = x.shape[1]
    out = device.empty(rows, streams * hidden)
    left = floats(device, "spread: weights", weights, (rows, streams))
    right = floats(device, "spread: x", x, (rows, hidden))
    count = out.numel()
    device.launch(SPREAD, blocks_for(count), THREADS, 0, left, right, out.data_ptr(), count, streams, hidden)
    return out
