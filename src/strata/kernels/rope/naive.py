"""Specification of rope and rope_angles.

`y_a = (a cos) - (b sin)`, `y_b = (b cos) + (a sin)`: two products rounded to float32, then one rounding for the sum; no
fused multiply-add. Dims from r on are copied. An angle is position * frequency in float64; its cosine and sine are one
libm call each in float64, rounded once: a vectorised cosine may round its tail differently, and the result would depend
on how many positions were asked at once.
"""

import math

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


def rope_angles(positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.rope_angles."""
    angles = [p * f for p in positions.tolist() for f in frequencies.tolist()]
    shape = (positions.shape[0], frequencies.shape[0])
    cos, sin = (np.array([f(a) for a in angles], np.float64).astype(np.float32) for f in (math.cos, math.sin))
    return torch.from_numpy(cos.reshape(shape)), torch.from_numpy(sin.reshape(shape))
