"""stream_mix and stream_add in C++ (csrc/layers_small.cpp); bits as streams/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats
from strata.kernels.native import Native


def stream_mix(native: Native, gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
    """See Ops.stream_mix; ValueError when shapes do not fit."""
    num_rows, width = x.shape
    if streams < 1 or width % streams:
        raise ValueError(f"stream_mix: {width} values do not hold {streams} streams")
    hidden = width // streams
    y = native.empty(num_rows, hidden)
    _native.stream_mix(
        native.handle,
        floats("stream_mix: gate", gate, (num_rows, width)),
        floats("stream_mix: x", x, (num_rows, width)),
        y.data_ptr(),
        num_rows,
        streams,
        hidden,
    )
    return y


def stream_add(
    native: Native, residual: torch.Tensor, y: torch.Tensor, gates: torch.Tensor, divisor: float, factor: float
) -> torch.Tensor:
    """See Ops.stream_add; ValueError when shapes do not fit."""
    num_rows, streams = gates.shape
    hidden = y.shape[1]
    out = native.empty(*residual.shape)
    _native.stream_add(
        native.handle,
        floats("stream_add: residual", residual, (num_rows, streams * hidden)),
        floats("stream_add: y", y, (num_rows, hidden)),
        floats("stream_add: gates", gates, (num_rows, streams)),
        divisor,
        factor,
        out.data_ptr(),
        num_rows,
        streams,
        hidden,
    )
    return out
