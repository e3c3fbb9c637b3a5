"""Specification of route.

Softmax as in attention/naive.py: `m = max`, `e_i = exp(x_i - m)`, `z` by 32 lanes over i and the tree, `p_i = e_i / z`.
The top k by p, the largest first, ties by the lower id (a NaN counts as the smallest; one NaN makes all of them NaN).
Renormalised: `s` = the kept p added in rank order from the first, one rounding each; `w = p / s`, IEEE division.
"""

import numpy as np
import torch

from strata.kernels.attention.naive import softmax_terms


def route(logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.route."""
    num_rows, num_experts = (int(n) for n in logits.shape)
    if not 1 <= top_k <= num_experts:
        raise ValueError(f"route: top_k {top_k} is outside 1 .. {num_experts} experts")
    scores = logits.numpy()
    _, e, z = softmax_terms(scores, np.ones(scores.shape, np.bool_))
    with np.errstate(all="ignore"):
        p = e / z[:, None]
    ids = np.empty((num_rows, top_k), np.int32)
    for t in range(num_rows):
        ids[t] = np.lexsort((np.arange(num_experts), -p[t], np.isnan(p[t])))[:top_k]
    weights = np.take_along_axis(p, ids.astype(np.int64), axis=1)
    if renormalise:
        with np.errstate(all="ignore"):
            total = weights[:, 0]
            for k in range(1, top_k):
                total = total + weights[:, k]
            weights = weights / total[:, None]
    return torch.from_numpy(ids), torch.from_numpy(np.ascontiguousarray(weights))
