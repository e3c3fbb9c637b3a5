"""activate in C++ (csrc/layers_activate.cpp); bits as activate/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.native import Native, check
from strata.kernels.ops import Activation

CODES: dict[Activation, int] = {"silu": 0, "sigmoid": 1, "softplus": 2, "exp": 3}
"""The extension's number of each function (layers_activate.cpp)."""


def activate(
    native: Native, kind: Activation, x: torch.Tensor, divisor: float = 1.0, factor: float = 1.0
) -> torch.Tensor:
    """See Ops.activate. ValueError when x is not contiguous float32."""
    check("activate: x", x, torch.float32, *x.shape)
    y = native.empty(*x.shape)
    _native.activate(native.handle, CODES[kind], x.data_ptr(), divisor, factor, y.data_ptr(), x.numel())
    return y
