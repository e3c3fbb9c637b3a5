"""select_blocks and sparse_attention on a device (csrc/device/select.h, attention_*.h); bits as the naive form.

Entries are not checked: the state hands out pages before a step.
"""

import torch

from strata.kernels.attention.gpu import Listed, attend
from strata.kernels.device import THREADS, Device, Kernel
from strata.kernels.device_addresses import floats, integers, plane
from strata.kernels.views import PagedPlane, Rows

SCORES, CHOOSE = (Kernel("select", name, early=True) for name in ("select_scores", "select_choose"))
MOST_SCORES = 16 << 20
"""Scores kept at once; more rows are taken in turns."""
GROUPS = THREADS // 32


def select_blocks(
    device: Device, q: torch.Tensor, block_keys: PagedPlane, rows: Rows, ratio: int, budget: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.select_blocks; ValueError when shapes do not fit."""
    num_rows, heads, dim = q.shape
    if ratio < 1 or budget < 0:
        raise ValueError(f"select_blocks: ratio {ratio} must be at least 1 and budget {budget} at least 0")
    keys = plane(device, "select_blocks: block_keys", block_keys, (dim,))
    if keys.type != "f32":
        raise ValueError(f"select_blocks: expected a plane of float32, found {keys.type}")
    queries = floats(device, "select_blocks: q", q, (num_rows, heads, dim))
    slot = integers(device, "select_blocks: slot", rows.slot, (num_rows,))
    position = integers(device, "select_blocks: position", rows.position, (num_rows,))
    positions = device.empty(num_rows, (budget + 1) * ratio, dtype=torch.int32)
    count = device.empty(num_rows, dtype=torch.int32)
    width = keys.page * keys.pages_per_slot
    at_once = max(1, min(num_rows, MOST_SCORES // width, 65535))
    scores = device.empty(at_once, width)
    for first in range(0, num_rows, at_once):
        now = min(at_once, num_rows - first)
        across = max(1, min(-(-width // GROUPS), 8 * device.processors // now))
        device.launch(
            SCORES,
            (across, now, 1),
            THREADS,
            4 * heads * dim,
            queries,
            keys.data,
            keys.table,
            slot,
            position,
            scores.data_ptr(),
            first,
            heads,
            dim,
            ratio,
            keys.page,
            keys.pages_per_slot,
            width,
        )
        device.launch(
            CHOOSE,
            (now, 1, 1),
            THREADS,
            0,
            scores.data_ptr(),
            position,
            positions.data_ptr(),
            count.data_ptr(),
            first,
            ratio,
            budget,
            width,
        )
    return positions, count


def sparse_attention(
    device: Device,
    q: torch.Tensor,
    keys: PagedPlane,
    values: PagedPlane,
    rows: Rows,
    scale: float,
    positions: torch.Tensor,
    count: torch.Tensor,
) -> torch.Tensor:
    """See Ops.sparse_attention; ValueError when shapes do not fit."""
    num_rows, width = q.shape[0], positions.shape[1]
    listed = Listed(
        integers(device, "sparse_attention: positions", positions, (num_rows, width)),
        integers(device, "sparse_attention: count", count, (num_rows,)),
        width,
    )
    return attend(device, "sparse_attention", q, keys, values, rows, scale, listed)
