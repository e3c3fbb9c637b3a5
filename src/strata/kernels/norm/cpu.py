"""rms_norm, l2_norm and row_dot in C++ (csrc/layers_norm.cpp); bits as norm/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats
from strata.kernels.native import Native


def rms_norm(native: Native, x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int) -> torch.Tensor:
    """See Ops.rms_norm; ValueError when shapes do not fit."""
    shape = x.shape
    width = shape[-1]
    if group < 1 or width % group:
        raise ValueError(f"rms_norm: last axis of {width} is no multiple of the group of {group}")
    y = native.empty(*x.shape)
    address, length = 0, 0
    if weight is not None:
        length = group if weight.shape[0] == group else width
        address = floats("rms_norm: weight", weight, (length,))
    _native.rms_norm(
        native.handle, floats("rms_norm: x", x, shape), address, y.data_ptr(), x.numel() // group, group, length, eps
    )
    return y


def l2_norm(native: Native, x: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
    """See Ops.l2_norm."""
    y = native.empty(*x.shape)
    width = x.shape[-1]
    rows = x.numel() // width if width else 0
    _native.l2_norm(native.handle, floats("l2_norm: x", x, x.shape), y.data_ptr(), rows, width, eps, scale)
    return y


def row_dot(native: Native, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """See Ops.row_dot; ValueError when the shapes differ."""
    shape = a.shape
    y = native.empty(*shape[:-1])
    _native.row_dot(
        native.handle,
        floats("row_dot: a", a, shape),
        floats("row_dot: b", b, shape),
        y.data_ptr(),
        y.numel(),
        shape[-1],
    )
    return y
