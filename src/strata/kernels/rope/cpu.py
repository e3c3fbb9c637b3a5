"""rope in C++ (csrc/layers_norm.cpp); bits as rope/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats
from strata.kernels.native import Native
from strata.kernels.ops import RopeLayout


def rope(native: Native, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
    """See Ops.rope; ValueError when shapes do not fit."""
    rows, heads, dim = x.shape
    half = cos.shape[-1]
    if 2 * half > dim or layout not in ("halves", "pairs"):
        raise ValueError(f"rope: layout {layout!r} and {half} angles do not fit heads of {dim}")
    y = torch.empty_like(x)
    _native.rope(
        native.handle,
        floats("rope: x", x, x.shape),
        floats("rope: cos", cos, (rows, half)),
        floats("rope: sin", sin, (rows, half)),
        y.data_ptr(),
        rows,
        heads,
        dim,
        half,
        layout == "pairs",
    )
    return y
