"""causal_conv and carry_rows in C++ (csrc/layers_conv.cpp); bits as conv/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats, held_segments, integers
from strata.kernels.native import Native
from strata.kernels.views import Rows


def causal_conv(
    native: Native, x: torch.Tensor, weight: torch.Tensor, history: torch.Tensor, rows: Rows, dilation: int
) -> torch.Tensor:
    """See Ops.causal_conv; ValueError when shapes or segments do not fit, IndexError for an unknown slot."""
    num_rows, channels = x.shape
    taps = weight.shape[1]
    if dilation < 1 or taps < 1:
        raise ValueError(f"causal_conv: {taps} taps and dilation {dilation} must be at least 1")
    slots, segments = history.shape[0], rows.segments.shape[0]
    out = native.empty(*x.shape)
    _native.causal_conv(
        native.handle,
        floats("causal_conv: x", x, (num_rows, channels)),
        floats("causal_conv: weight", weight, (channels, taps)),
        floats("causal_conv: history", history, (slots, (taps - 1) * dilation, channels)),
        out.data_ptr(),
        integers("causal_conv: segments", rows.segments, (segments, 3)),
        held_segments("causal_conv", rows),
        segments,
        slots,
        num_rows,
        channels,
        taps,
        dilation,
    )
    return out


def carry_rows(native: Native, x: torch.Tensor, history: torch.Tensor, rows: Rows) -> None:
    """See Ops.carry_rows; ValueError when shapes or segments do not fit, IndexError for an unknown slot."""
    (num_rows, channels), (slots, span, _), segments = x.shape, history.shape, rows.segments.shape[0]
    _native.carry_rows(
        native.handle,
        floats("carry_rows: x", x, (num_rows, channels)),
        floats("carry_rows: history", history, (slots, span, channels)),
        integers("carry_rows: segments", rows.segments, (segments, 3)),
        segments,
        slots,
        num_rows,
        channels,
        span,
    )
