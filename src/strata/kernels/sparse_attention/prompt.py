"""sparse_attention for the many rows of a prompt (csrc/device/attention_list.h); bits as sparse_attention/naive.py."""

import torch

from strata.kernels.attention.gpu import TYPES
from strata.kernels.device import THREADS, Device, Kernel
from strata.kernels.device_addresses import KV_TYPES, floats, integers, plane
from strata.kernels.device_source import units
from strata.kernels.sparse_attention import gpu
from strata.kernels.views import PagedPlane, Rows

BLOCK, PITCH = 256, 260
"""Positions with one maximum; floats from one query's scores to the next's."""

DIMS, MOST_QUERIES = (128, 256), 16
"""Of a head; query heads of a KV head. Other shapes go through the kernel of windows, and so do those that the host's
emulator was not built with."""


def shared_bytes(dim: int, queries: int) -> int:
    """What a block keeps (ListMemory)."""
    blocks = THREADS // (dim // 4)
    return 4 * (blocks * queries * (PITCH + 4) + 2 * blocks * BLOCK + 2 * queries)


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
    if not fits or (device.torch_device.type == "cpu" and unit not in units()):
        return gpu.sparse_attention(device, q, keys, values, rows, scale, positions, count)
    k, v = (
        plane(device, f"sparse_attention: {name}", paged, (kv_heads, dim))
        for name, paged in (("keys", keys), ("values", values))
    )
    out = device.empty(*q.shape)
    device.launch(
        Kernel(unit, "attention_list"),
        (num_rows, kv_heads, 1),
        THREADS,
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
