"""Routed experts: the specification (docs/numerics.md, rules 5 and 6)."""

import numpy as np
import torch

from strata.kernels.activate.naive import silu
from strata.kernels.exact import fma, multiply
from strata.kernels.linear.naive import linear
from strata.kernels.views import ExpertBank


def experts(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, bank: ExpertBank) -> torch.Tensor:
    """y = sum over k in rank order of fma(weight_k, expert_k(x), y), from y = 0 -> float32 [T, hidden].

    x [T, hidden]; ids int32 [T, k]; weights float32 [T, k]. expert(x) = down(silu(gate x) * up x): one float32 product
    between silu and up, and the result is quantised anew for the down product. IndexError for an unknown expert.
    """
    chosen, factors = ids.numpy(), weights.numpy()
    outputs = np.zeros((*chosen.shape, bank.down[0].rows), np.float32)
    for expert in sorted({int(e) for e in chosen.flat}):
        if not 0 <= expert < len(bank.down):
            raise IndexError(f"expert {expert} of {len(bank.down)}")
        at_row, at_rank = np.nonzero(chosen == expert)
        gate, up = linear(x[torch.from_numpy(at_row)], (bank.gate[expert], bank.up[expert]))
        hidden = multiply(silu(gate.numpy()), up.numpy())
        (down,) = linear(torch.from_numpy(hidden), (bank.down[expert],))
        outputs[at_row, at_rank] = down.numpy()
    y = np.zeros((len(chosen), outputs.shape[2]), np.float32)
    for rank in range(chosen.shape[1]):
        y = fma(factors[:, rank : rank + 1], outputs[:, rank], y)
    return torch.from_numpy(y)
