"""embed in C++ (csrc/products_compute.cpp)."""

import torch

from strata.kernels import _native
from strata.kernels.native import Native, check, describe
from strata.kernels.views import Weight


def embed(native: Native, ids: torch.Tensor, weight: Weight) -> torch.Tensor:
    """See Ops.embed. ValueError when ids are not int64 [T] or the weight's planes do not fit."""
    check("embed: ids", ids, torch.int64, None)
    y = torch.empty(ids.shape[0], weight.cols)
    _native.embed(native.handle, describe(weight), ids.data_ptr(), ids.shape[0], y.data_ptr())
    return y
