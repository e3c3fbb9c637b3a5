"""experts in C++ (csrc/products_compute.cpp)."""

import torch

from strata.kernels import _native
from strata.kernels.native import Native, check
from strata.kernels.views import ExpertBank


def experts(
    native: Native, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, bank: ExpertBank
) -> torch.Tensor:
    """See Ops.experts. IndexError for an unknown expert; ValueError when shapes or types do not fit the bank."""
    described = native.bank(bank)
    check("experts: x", x, torch.float32, None, bank.gate[0].cols)
    check("experts: ids", ids, torch.int32, x.shape[0], None)
    check("experts: weights", weights, torch.float32, x.shape[0], ids.shape[1])
    y = native.empty(*x.shape)
    _native.experts(
        native.handle,
        described,
        x.data_ptr(),
        x.shape[0],
        ids.data_ptr(),
        weights.data_ptr(),
        ids.shape[1],
        y.data_ptr(),
    )
    return y
