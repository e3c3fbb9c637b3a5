"""Elementwise arithmetic in C++ (csrc/layers_elementwise.cpp); bits as elementwise/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.activate.cpu import CODES
from strata.kernels.addresses import floats
from strata.kernels.native import Native
from strata.kernels.ops import Activation


def add(native: Native, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """See Ops.add; ValueError when the shapes differ."""
    out = native.empty(*x.shape)
    _native.add(native.handle, floats("add: x", x, x.shape), floats("add: y", y, x.shape), out.data_ptr(), out.numel())
    return out


def divide(native: Native, x: torch.Tensor, by: float) -> torch.Tensor:
    """See Ops.divide."""
    out = native.empty(*x.shape)
    _native.divide(native.handle, floats("divide: x", x, x.shape), by, out.data_ptr(), out.numel())
    return out


def multiply(native: Native, x: torch.Tensor, by: float) -> torch.Tensor:
    """See Ops.multiply."""
    out = native.empty(*x.shape)
    _native.multiply(native.handle, floats("multiply: x", x, x.shape), by, out.data_ptr(), out.numel())
    return out


def gate(native: Native, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """See Ops.gate; ValueError when the shapes differ."""
    out = native.empty(*x.shape)
    _native.gate(
        native.handle,
        CODES[kind],
        floats("gate: g", g, x.shape),
        floats("gate: x", x, x.shape),
        out.data_ptr(),
        out.numel(),
    )
    return out


def signed_root(native: Native, x: torch.Tensor, least: float) -> torch.Tensor:
    """See Ops.signed_root."""
    out = native.empty(*x.shape)
    _native.signed_root(native.handle, floats("signed_root: x", x, x.shape), least, out.data_ptr(), out.numel())
    return out


def delta_rates(
    native: Native, b: torch.Tensor, a: torch.Tensor, rate: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.delta_rates; ValueError when shapes do not fit."""
    rows, heads = b.shape
    beta, decay = native.empty(rows, heads), native.empty(rows, heads)
    _native.delta_rates(
        native.handle,
        floats("delta_rates: b", b, (rows, heads)),
        floats("delta_rates: a", a, (rows, heads)),
        floats("delta_rates: rate", rate, (heads,)),
        floats("delta_rates: bias", bias, (heads,)),
        beta.data_ptr(),
        decay.data_ptr(),
        rows,
        heads,
    )
    return beta, decay


def spread(native: Native, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """See Ops.spread; ValueError when the numbers of rows differ."""
    rows, streams = weights.shape
    hidden = x.shape[1]
    out = native.empty(rows, streams * hidden)
    _native.spread(
        native.handle,
        floats("spread: weights", weights, (rows, streams)),
        floats("spread: x", x, (rows, hidden)),
        out.data_ptr(),
        rows,
        streams,
        hidden,
    )
    return out
