"""route in C++ (csrc/layers_small.cpp); bits as route/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats
from strata.kernels.native import Native


def route(native: Native, logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.route; ValueError when top_k is outside 1 .. E."""
    num_rows, num_experts = logits.shape
    if not 1 <= top_k <= num_experts:
        raise ValueError(f"route: top_k {top_k} is outside 1 .. {num_experts} experts")
    ids = native.empty(num_rows, top_k, dtype=torch.int32)
    weights = native.empty(num_rows, top_k)
    _native.route(
        native.handle,
        floats("route: logits", logits, logits.shape),
        ids.data_ptr(),
        weights.data_ptr(),
        num_rows,
        num_experts,
        top_k,
        renormalise,
    )
    return ids, weights
