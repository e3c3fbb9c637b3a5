"""Norms of many rows on a device (csrc/device/norm_many.h, gated_norm.h); bits as norm/naive.py."""

import torch

from strata.kernels.device import GROUP, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats
from strata.kernels.device_source import units
from strata.kernels.norm import gpu
from strata.kernels.ops import Activation

MOST_VALUES = 128
"""Values of a row that a lane keeps in registers."""

MOST_GATED = 256
"""Values of a gated group, which a group of lanes keeps."""


def unit_for(device: Device, header: str, width: int) -> str:
    """The unit for rows of so many values; "" where they are too long or too short for it, or the emulator lacks it."""
    values = width // GROUP
    unit = f"{header} NORM_VALUES={values}"
    fits = width % GROUP == 0 and width > gpu.NARROW and values <= MOST_VALUES
    return unit if fits and (device.torch_device.type != "cpu" or unit in units()) else ""


def grid_for(rows: int) -> tuple[int, int, int]:
    """A group of lanes for each row."""
    return blocks_for(rows, gpu.NARROW_THREADS // GROUP)


def rms_norm(device: Device, x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int) -> torch.Tensor:
    """See Ops.rms_norm; ValueError when shapes do not fit."""
    width = x.shape[-1]
    rows, unit = x.numel() // max(1, group), unit_for(device, "norm_many", group)
    if not unit or width % group or rows < gpu.MANY:
        return gpu.rms_norm(device, x, weight, eps, group)
    y = device.empty(*x.shape)
    source = floats(device, "rms_norm: x", x, x.shape)
    length, at = gpu.weight_of(device, "rms_norm: weight", weight, width, group)
    kernel = Kernel(unit, "rms_norm_many")
    device.launch(kernel, grid_for(rows), gpu.NARROW_THREADS, 0, source, at, y.data_ptr(), rows, length, float(eps))
    return y


def add_norm(
    device: Device, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.add_norm, for widths that `unit_for` knows; ValueError when shapes do not fit."""
    rows, width = x.shape
    total, normed = device.empty(rows, width), device.empty(rows, width)
    left, right = floats(device, "add_norm: x", x, x.shape), floats(device, "add_norm: y", y, x.shape)
    length, at = gpu.weight_of(device, "add_norm: weight", weight, width, width)
    places = left, right, at, total.data_ptr(), normed.data_ptr()
    kernel = Kernel(unit_for(device, "norm_many", width), "add_norm_many")
    device.launch(kernel, grid_for(rows), gpu.NARROW_THREADS, 0, *places, rows, length, float(eps))
    return total, normed


def gated_norm(
    device: Device,
    kind: Activation,
    gate: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    group: int,
) -> torch.Tensor:
    """See Ops.gated_norm; ValueError when shapes do not fit."""
    rows, width = gate.shape
    kept = 0 < group <= MOST_GATED and group % GROUP == 0 and width % group == 0 and x.shape[-1] % group == 0
    if not kept or x.numel() != gate.numel():
        return gpu.gated_norm(device, kind, gate, x, weight, eps, group)
    y = device.empty(rows, width)
    source, opened = floats(device, "gated_norm: x", x, x.shape), floats(device, "gated_norm: gate", gate, gate.shape)
    length, at = gpu.weight_of(device, "gated_norm: weight", weight, x.shape[-1], group)
    sizes = rows * width // group, group, length
    kernel = Kernel("gated_norm", f"gated_norm_many_{kind}")
    device.launch(
        kernel, grid_for(sizes[0]), gpu.NARROW_THREADS, 0, source, at, opened, y.data_ptr(), *sizes, float(eps)
    )
    return y
