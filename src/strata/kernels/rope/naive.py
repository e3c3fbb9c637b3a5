"""Specification of rope.

`y_a = (a cos) - (b sin)`, `y_b = (b cos) + (a sin)`: two products rounded to float32, then one rounding for the sum; no
fused multiply-add. Dims from r on are copied.
"""

import numpy as np
import torch

from strata.kernels.ops import RopeLayout


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
    """See Ops.rope."""
    half = int(cos.shape[-1])
    if cos.shape != sin.shape or cos.shape[0] != x.shape[0] or 2 * half > x.shape[-1]:
        raise ValueError(f"rope: cos {tuple(cos.shape)}, sin {tuple(sin.shape)} do not fit x {tuple(x.shape)}")
    source = x.numpy()
    y = source.copy()
    if layout == "halves":
        first, second = slice(0, half), slice(half, 2 * half)
    elif layout == "pairs":
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        raise ValueError(f"rope: layout {layout!r} is neither 'halves' nor 'pairs'")
    a, b = source[..., first], source[..., second]
    c, s = cos.numpy()[:, None, :], sin.numpy()[:, None, :]
    with np.errstate(all="ignore"):
        y[..., first] = a * c - b * s
        y[..., second] = b * c + a * s
    return torch.from_numpy(y)
