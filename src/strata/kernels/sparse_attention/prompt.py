"""select_blocks and sparse_attention for the many rows of a prompt; bits as sparse_attention/naive.py.

csrc/device/select_prompt.h, attention_list.h.
"""

import torch

from strata.kernels.attention.gpu import TYPES
from strata.kernels.device import THREADS, Device, Kernel
from strata.kernels.device_addresses import KV_TYPES, floats, integers, plane
from strata.kernels.device_source import units
from strata.kernels.sparse_attention import gpu
from strata.kernels.views import PagedPlane, Rows

BLOCK, PITCH, AHEAD = 256, 260, 32
"""Positions with one maximum; floats from one query's scores to the next's; positions read beyond a round."""

DIMS, MOST_QUERIES = (128, 256), 16
"""Of a head; query heads of a KV head. Other shapes go through the kernel of windows, and so do those that the host's
emulator was not built with."""


SELECT_ROWS, SELECT_HEADS, SELECT_DIM = 4, (1, 2, 4), 32
"""Rows that share a key; index heads; what divides their dims. Others go through the kernel of windows."""


def select_blocks(
    device: Device, q: torch.Tensor, block_keys: PagedPlane, rows: Rows, ratio: int, budget: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.select_blocks; ValueError when shapes do not fit."""
    num_rows, heads, dim = q.shape
    unit = f"select_prompt SELECT_HEADS={heads} SELECT_DIM={dim}"
    known = device.torch_device.type != "cpu" or unit in units()
    if heads not in SELECT_HEADS or dim % SELECT_DIM or dim > 256 or ratio < 1 or budget < 0 or not known:
        return gpu.select_blocks(device, q, block_keys, rows, ratio, budget)
    keys = plane(device, "select_blocks: block_keys", block_keys, (dim,))
    if keys.type != "f32":
        raise ValueError(f"select_blocks: expected a plane of float32, found {keys.type}")
    queries = floats(device, "select_blocks: q", q, (num_rows, heads, dim))
    slot = integers(device, "select_blocks: slot", rows.slot, (num_rows,))
    position = integers(device, "select_blocks: position", rows.position, (num_rows,))
    positions = device.empty(num_rows, (budget + 1) * ratio, dtype=torch.int32)
    count = device.empty(num_rows, dtype=torch.int32)
    width = keys.page * keys.pages_per_slot
    at_once = max(1, min(num_rows, gpu.MOST_SCORES // width, 65535))
    scores = device.empty(at_once, width)
    for first in range(0, num_rows, at_once):
        now = min(at_once, num_rows - first)
        tiles, groups = -(-now // SELECT_ROWS), THREADS // 16
        grid = (max(1, min(-(-width // groups), 8 * device.processors // tiles)), tiles, 1)
        known_of = (queries, keys.data, keys.table, slot, position, scores.data_ptr())
        sizes = (first, now, ratio, keys.page, keys.pages_per_slot, width)
        device.launch(Kernel(unit, "select_prompt"), grid, THREADS, 0, *known_of, *sizes)
        chosen = (scores.data_ptr(), position, positions.data_ptr(), count.data_ptr(), first, ratio, budget, width)
        device.launch(gpu.CHOOSE, (now, 1, 1), THREADS, 0, *chosen)
    return positions, count


def list_threads(dim: int, queries: int) -> int:
    """Of a block, as csrc/device/attention_list.h has them."""
    return 384 if dim == 256 and queries <= 12 else THREADS


def shared_bytes(dim: int, queries: int) -> int:
    """What a block keeps (ListMemory)."""
    blocks = list_threads(dim, queries) // (dim // 4)
    return 4 * (blocks * queries * (PITCH + 4) + 2 * (blocks * BLOCK + AHEAD) + 2 * queries)


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
    num_rows, heads, dim = q.shape
    kv_heads, width = keys.data.shape[1], positions.shape[1]
    queries = heads // max(1, kv_heads)
    alike = keys.data.dtype == values.data.dtype and keys.data.dtype in KV_TYPES
    unit = (
        f"attention_list LIST_DIM={dim} LIST_QUERIES={queries} LIST_TYPE={TYPES[KV_TYPES[keys.data.dtype]]}"
        if alike
        else ""
    )
    fits = alike and kv_heads * queries == heads and dim in DIMS and 0 < queries <= MOST_QUERIES
    fits = fits and shared_bytes(dim, queries) <= device.shared.dynamic
    if not fits or (device.torch_device.type == "cpu" and unit not in units()):
        return gpu.sparse_attention(device, q, keys, values, rows, scale, positions, count)
    k, v = (
        plane(device, f"sparse_attention: {name}", paged, (kv_heads, dim))
        for name, paged in (("keys", keys), ("values", values))
    )
    out = device.empty(num_rows, heads * dim)
    device.launch(
        Kernel(unit, "attention_list"),
        (num_rows, kv_heads, 1),
        list_threads(dim, queries),
        shared_bytes(dim, queries),
        floats(device, "sparse_attention: q", q, (num_rows, heads, dim)),
        k.data,
        k.scales,
        k.table,
        v.data,
        v.scales,
        v.table,
        integers(device, "sparse_attention: slot", rows.slot, (num_rows,)),
        integers(device, "sparse_attention: positions", positions, (num_rows, width)),
        integers(device, "sparse_attention: count", count, (num_rows,)),
        out.data_ptr(),
        kv_heads,
        k.page,
        k.pages_per_slot,
        v.page,
        v.pages_per_slot,
        width,
        scale,
    )
    return out
