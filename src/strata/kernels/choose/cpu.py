"""choose in C++ (csrc/layers_choose.cpp, choose_bind.cpp); tokens as choose/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats
from strata.kernels.choose.naive import MOST_VALUES
from strata.kernels.native import Native


def choose(
    native: Native, logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
) -> int:
    """See Ops.choose."""
    count = logits.shape[0]
    if not 0 < count <= MOST_VALUES:
        raise ValueError(f"choose: {count} values, expected 1 to {MOST_VALUES}")
    address = floats("choose: logits", logits, (count,))
    return _native.choose(native.handle, address, count, temperature, top_k, top_p, min_p, uniform)
