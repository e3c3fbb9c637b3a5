"""rms_norm, add_norm, l2_norm and row_dot on a device (csrc/device/norm.h); bits as norm/naive.py."""

import torch

from strata.kernels.device import GROUP, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats
from strata.kernels.linear.launch import beside
from strata.kernels.ops import Activation

RMS_NARROW, RMS_WIDE, ADD_NORM, L2, ROW_DOT = (
    Kernel("norm", name, early=True) for name in ("rms_norm_narrow", "rms_norm_wide", "add_norm", "l2_norm", "row_dot")
)
GATED: dict[Activation, Kernel] = {
    kind: Kernel("gated_norm", f"gated_norm_{kind}", early=True) for kind in ("silu", "sigmoid", "softplus", "exp")
}
NARROW = 512
"""Values of a row up to which one group of lanes does it alone."""
NARROW_THREADS = 128
WIDE_THREADS = 1024
"""Of a wide row's block, at most: all groups of lanes bring it in and write it, one sums."""
VECTOR = 4
"""Neighbouring values that a thread brings at once."""
MANY = 1024
"""Rows from which a group of lanes does a wide one alone, too: there are groups enough to wait for memory."""
WIDE_BYTES = 96 << 10
"""Shared memory up to which a wide row is kept there; every GPU that is supported has it."""


def rms_norm(device: Device, x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int) -> torch.Tensor:
    """See Ops.rms_norm; ValueError when shapes do not fit."""
    width = x.shape[-1]
    if group < 1 or width % group:
        raise ValueError(f"rms_norm: last axis of {width} is no multiple of the group of {group}")
    y = device.empty(*x.shape)
    source = floats(device, "rms_norm: x", x, x.shape)
    length, at = weight_of(device, "rms_norm: weight", weight, width, group)
    rows, eps = x.numel() // group, float(eps)
    if adds(group) and 0 < rows < MANY:
        # Norms of streams are left alone: what reads them is kept in plain floats as a rule.
        places = beside(device, y) if group == width else (0, 0)
        sizes = group, length
        threads = wide_threads(group)
        device.launch(RMS_WIDE, (rows, 1, 1), threads, 4 * group, source, at, y.data_ptr(), *places, *sizes, eps)
    else:
        grid = blocks_for(rows, NARROW_THREADS // GROUP)
        device.launch(RMS_NARROW, grid, NARROW_THREADS, 0, source, at, y.data_ptr(), rows, group, length, eps)
    return y


def adds(width: int) -> bool:
    """Whether `add_norm` takes rows of so many values."""
    return NARROW < width <= WIDE_BYTES // 4 and width % VECTOR == 0


def wide_threads(width: int) -> int:
    """Of the block of a wide row."""
    return min(WIDE_THREADS, -(-width // (VECTOR * GROUP)) * GROUP)


def add_norm(
    device: Device, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.add_norm, for widths that `adds` names; ValueError when shapes do not fit."""
    rows, width = x.shape
    total, normed = device.empty(rows, width), device.empty(rows, width)
    left, right = floats(device, "add_norm: x", x, x.shape), floats(device, "add_norm: y", y, x.shape)
    length, at = weight_of(device, "add_norm: weight", weight, width, width)
    places = total.data_ptr(), normed.data_ptr(), *beside(device, normed)
    if rows:
        grid, threads = (rows, 1, 1), wide_threads(width)
        device.launch(ADD_NORM, grid, threads, 4 * width, left, right, at, *places, width, length, float(eps))
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
    if group < 1 or width % group or x.shape[-1] % group:
        raise ValueError(f"gated_norm: rows of {width} values, last axis {x.shape[-1]}, hold no groups of {group}")
    y = device.empty(rows, width)
    source, opened = floats(device, "gated_norm: x", x, x.shape), floats(device, "gated_norm: gate", gate, gate.shape)
    if x.numel() != gate.numel():
        raise ValueError(f"gated_norm: {x.numel()} values for {gate.numel()} gates")
    length, at = weight_of(device, "gated_norm: weight", weight, x.shape[-1], group)
    places = beside(device, y) if group % GROUP == 0 else (0, 0)
    groups = rows * width // group
    sizes = groups, group, length, width, float(eps)
    grid = blocks_for(groups, NARROW_THREADS // GROUP)
    device.launch(GATED[kind], grid, NARROW_THREADS, 0, source, at, opened, y.data_ptr(), *places, *sizes)
    return y


def weight_of(device: Device, what: str, weight: torch.Tensor | None, width: int, group: int) -> tuple[int, int]:
    """(number of weights, their address): of a group or of the whole last axis; zeros without."""
    if weight is None:
        return 0, 0
    length = group if weight.shape[0] == group else width
    return length, floats(device, what, device.resident(weight), (length,))


def l2_norm(device: Device, x: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
    """See Ops.l2_norm."""
    y = device.empty(*x.shape)
    width = x.shape[-1]
    rows = x.numel() // width if width else 0
    source = floats(device, "l2_norm: x", x, x.shape)
    grid = blocks_for(rows, NARROW_THREADS // GROUP)
    device.launch(L2, grid, NARROW_THREADS, 0, source, y.data_ptr(), rows, width, float(eps), float(scale))
    return y


def row_dot(device: Device, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """See Ops.row_dot; ValueError when the shapes differ."""
    y = device.empty(*a.shape[:-1])
    left, right = floats(device, "row_dot: a", a, a.shape), floats(device, "row_dot: b", b, a.shape)
    grid = blocks_for(y.numel(), NARROW_THREADS // GROUP)
    device.launch(ROW_DOT, grid, NARROW_THREADS, 0, left, right, y.data_ptr(), y.numel(), a.shape[-1])
    return y
