"""rope and rope_angles in C++ (csrc/layers_norm.cpp, rows_bind.cpp); bits as rope/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats, integers
from strata.kernels.native import Native, check
from strata.kernels.ops import RopeLayout


def rope(native: Native, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
    """See Ops.rope; ValueError when shapes do not fit."""
    rows, heads, dim = x.shape
    half = cos.shape[-1]
    if 2 * half > dim or layout not in ("halves", "pairs"):
        raise ValueError(f"rope: layout {layout!r} and {half} angles do not fit heads of {dim}")
    y = native.empty(*x.shape)
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


def rope_angles(
    native: Native, positions: torch.Tensor, frequencies: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.rope_angles; ValueError when the frequencies are not float64."""
    check("rope_angles: frequencies", frequencies, torch.float64, None)
    rows, half = positions.shape[0], frequencies.shape[0]
    cos, sin = native.empty(rows, half), native.empty(rows, half)
    _native.rope_angles(
        native.handle,
        integers("rope_angles: positions", positions, (rows,)),
        frequencies.data_ptr(),
        cos.data_ptr(),
        sin.data_ptr(),
        rows,
        half,
    )
    return cos, sin
