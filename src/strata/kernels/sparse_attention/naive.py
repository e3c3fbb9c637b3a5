"""Specification of select_blocks and sparse_attention.

select_blocks, for row t with n = (position + 1) // ratio complete blocks: `score_j = sum over heads h of
relu(q_h . k_j)`, starting from +0, one plain addition per head in order; the dot by the lane rule; relu(x) is 0 for
x < 0 and x otherwise, so NaN stays NaN. Blocks are ranked by score, the largest first; a NaN score ranks before every
number, and equal scores (two NaN too) by the higher j: of blocks that relu set to 0 alike the nearest is kept. The
first min(budget, n) are kept.

sparse_attention: attention/naive.py over the listed positions; lanes and sums count places of the list.
"""

import numpy as np
import torch

from strata.kernels.attention.naive import attend, check_heads, gather
from strata.kernels.exact import lane_dot
from strata.kernels.views import PagedPlane, Rows


def select_blocks(
    q: torch.Tensor, block_keys: PagedPlane, rows: Rows, ratio: int, budget: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.select_blocks."""
    if ratio < 1 or budget < 0:
        raise ValueError(f"select_blocks: ratio {ratio} must be at least 1 and budget {budget} at least 0")
    num_rows = int(q.shape[0])
    queries, slots, position = q.numpy(), rows.slot.numpy(), rows.position.numpy()
    positions = np.full((num_rows, budget * ratio + ratio), -1, np.int32)
    count = np.zeros(num_rows, np.int32)
    inside = np.arange(ratio)
    for t in range(num_rows):
        num_blocks = (int(position[t]) + 1) // ratio
        keys = gather(block_keys, int(slots[t]), np.arange(num_blocks, dtype=np.int32))
        score = np.zeros(num_blocks, np.float32)
        with np.errstate(all="ignore"):
            for head in queries[t]:
                dots = lane_dot(np.broadcast_to(head, keys.shape), keys)
                score = score + np.where(dots < 0, np.float32(0), dots)
        order = np.lexsort((-np.arange(num_blocks), -score, ~np.isnan(score)))
        kept = np.sort(order[: min(budget, num_blocks)])
        tail = np.arange(num_blocks * ratio, int(position[t]) + 1)
        listed = np.concatenate(((kept[:, None] * ratio + inside).reshape(-1), tail))
        positions[t, : len(listed)] = listed
        count[t] = len(listed)
    return torch.from_numpy(positions), torch.from_numpy(count)


def sparse_attention(
    q: torch.Tensor,
    keys: PagedPlane,
    values: PagedPlane,
    rows: Rows,
    scale: float,
    positions: torch.Tensor,
    count: torch.Tensor,
) -> torch.Tensor:
    """See Ops.sparse_attention."""
    check_heads("sparse_attention", q, keys, values)
    queries, slots, listed, counts = q.numpy(), rows.slot.numpy(), positions.numpy(), count.numpy()
    out = np.empty_like(queries)
    for t in range(len(queries)):
        here = listed[t, : counts[t]]
        k, v = gather(keys, int(slots[t]), here), gather(values, int(slots[t]), here)
        out[t] = attend(queries[t : t + 1], k, v, counts[t : t + 1], scale)[0]
    return torch.from_numpy(out.reshape(len(out), -1))
