"""linear in C++ (csrc/products_compute.cpp)."""

from collections.abc import Sequence

import torch

from strata.kernels import _native
from strata.kernels.native import Native, check
from strata.kernels.views import Weight


def linear(native: Native, x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
    """See Ops.linear. ValueError when x is not float32 [T, cols of every weight] or a weight's planes do not fit."""
    check("linear: x", x, torch.float32, None, None)
    for weight in weights:
        if weight.cols != x.shape[1]:
            raise ValueError(f"rows of {x.shape[1]} values for a weight of {weight.cols} columns")
    described = [native.weight(weight) for weight in weights]
    outputs = tuple(native.empty(x.shape[0], weight.rows) for weight in weights)
    _native.linear(
        native.handle, x.data_ptr(), x.shape[0], x.shape[1], described, [output.data_ptr() for output in outputs]
    )
    return outputs
