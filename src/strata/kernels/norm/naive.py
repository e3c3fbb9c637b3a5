"""Specification of rms_norm, l2_norm and row_dot.

The lane rule for sum(a_l b_l): 32 lanes start at +0; lane l takes the elements l, l + 32, ... in increasing order,
`acc_l = fma(a, b, acc_l)` (one rounding each; a lane without an element keeps its value); then the tree adds
lane l + 16 to lane l, then l + 8, + 4, + 2, + 1, one rounding per addition.

rms_norm: `mean = sum / n`, `r = 1 / sqrt(mean + eps)`, `y = (x r) w`; l2_norm: `r = 1 / sqrt(sum + eps)`,
`y = (x r) scale`; gated_norm: `activate(g) y` with rms_norm's y. Every written operation is float32 and rounds once;
division and square root are IEEE's. eps and scale are rounded to float32 first. Without a weight its multiplication is
left out.
"""

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.activate.naive import activate
from strata.kernels.exact import lane_dot
from strata.kernels.ops import Activation

Array = npt.NDArray[np.float32]
_ONE = np.float32(1)


def reciprocal_root(total: Array, eps: float) -> Array:
    """1 / sqrt(total + eps), three roundings."""
    with np.errstate(all="ignore"):
        root: Array = _ONE / np.sqrt(total + np.float32(eps))
    return root


def l2_scaled(x: Array, eps: float, scale: float) -> Array:
    """l2_norm on numpy arrays: x [..., D] -> [..., D]."""
    r = reciprocal_root(lane_dot(x, x), eps)[..., None]
    with np.errstate(all="ignore"):
        scaled: Array = (x * r) * np.float32(scale)
    return scaled


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int) -> torch.Tensor:
    """See Ops.rms_norm."""
    if group < 1 or x.shape[-1] % group:
        raise ValueError(f"rms_norm: last axis of {x.shape[-1]} is no multiple of the group of {group}")
    if weight is not None and tuple(weight.shape) not in ((x.shape[-1],), (group,)):
        raise ValueError(f"rms_norm: weight {tuple(weight.shape)} is neither ({x.shape[-1]},) nor ({group},)")
    grouped: Array = x.numpy().reshape(-1, group)
    with np.errstate(all="ignore"):
        mean = lane_dot(grouped, grouped) / np.float32(group)
        y = grouped * reciprocal_root(mean, eps)[:, None]
        if weight is not None:
            w = weight.numpy()
            y = (y.reshape(-1, w.shape[0]) * w).astype(np.float32, copy=False)
    return torch.from_numpy(y.reshape(tuple(x.shape)))


def gated_norm(
    kind: Activation, gate: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int
) -> torch.Tensor:
    """See Ops.gated_norm."""
    with np.errstate(all="ignore"):
        y: Array = activate(kind, gate).numpy() * rms_norm(x, weight, eps, group).numpy().reshape(tuple(gate.shape))
    return torch.from_numpy(y)


def l2_norm(x: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
    """See Ops.l2_norm."""
    return torch.from_numpy(l2_scaled(x.numpy(), eps, scale))


def row_dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """See Ops.row_dot."""
    if a.shape != b.shape:
        raise ValueError(f"row_dot: shapes {tuple(a.shape)} and {tuple(b.shape)} differ")
    return torch.from_numpy(np.asarray(lane_dot(a.numpy(), b.numpy()), dtype=np.float32))
