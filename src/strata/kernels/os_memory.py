"""Huge pages for large tensors."""

import torch

from strata.kernels import _native


def huge(tensor: torch.Tensor) -> torch.Tensor:
    """The same new, untouched tensor, in huge pages where the system has some."""
    _native.advise_huge(tensor.data_ptr(), tensor.nbytes)
    return tensor
