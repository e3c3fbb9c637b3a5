"""Specification of causal_conv and carry_rows.

`a = fma(w[c, k], x_{t - (K-1-k) dilation}[c], a)` for taps k = 0 .. K-1 in order, from +0; `y = silu(a)`, the shared
silu (activate/naive.py). Rows before the segment come from the slot's history; afterwards the history holds the last
(K-1) dilation rows of history and segment together, bits copied, unless the segment is held.
"""

import numpy as np
import torch

from strata.kernels.activate.naive import silu
from strata.kernels.exact import fma
from strata.kernels.views import Rows, held_flags


def causal_conv(
    x: torch.Tensor, weight: torch.Tensor, history: torch.Tensor, rows: Rows, dilation: int
) -> torch.Tensor:
    """See Ops.causal_conv."""
    taps = int(weight.shape[1])
    span = (taps - 1) * dilation
    if dilation < 1 or weight.shape[0] != x.shape[1] or tuple(history.shape[1:]) != (span, x.shape[1]):
        raise ValueError(
            f"causal_conv: x {tuple(x.shape)}, weight {tuple(weight.shape)}, history {tuple(history.shape)} "
            f"and dilation {dilation} do not fit"
        )
    source, w, past = x.numpy(), weight.numpy(), history.numpy()
    out = np.empty_like(source)
    for (slot, first, length), held in zip(rows.segments.tolist(), held_flags(rows), strict=True):
        here = np.concatenate((past[slot], source[first : first + length]))
        acc = np.zeros((length, source.shape[1]), np.float32)
        for k in range(taps):
            acc = fma(w[None, :, k], here[k * dilation : k * dilation + length], acc)
        out[first : first + length] = silu(acc)
        if not held:
            past[slot] = here[length:]
    return torch.from_numpy(out)


def carry_rows(x: torch.Tensor, history: torch.Tensor, rows: Rows) -> None:
    """See Ops.carry_rows."""
    source, past = x.numpy(), history.numpy()
    for slot, first, length in rows.segments.tolist():
        past[slot] = np.concatenate((past[slot], source[first : first + length]))[length:]
