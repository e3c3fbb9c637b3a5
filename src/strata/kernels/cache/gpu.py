"""cache_write and pool_blocks on a device (csrc/device/cache.h); bits as cache/naive.py.

Kernels check no entry: the state hands out pages before a step, so every entry that is written lies on one.
"""

import torch

from strata.kernels.device import GROUP, THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats, integers, plane
from strata.kernels.views import KvType, PagedPlane

WRITE: dict[KvType, Kernel] = {
    "f32": Kernel("cache", "cache_write_f32", early=True),
    "bf16": Kernel("cache", "cache_write_bf16", early=True),
    "int8": Kernel("cache", "cache_write_int8", early=True),
}
POOL = Kernel("cache", "pool_blocks", early=True)
WRITE_THREADS = 128


def cache_write(device: Device, paged: PagedPlane, slots: torch.Tensor, entries: torch.Tensor, x: torch.Tensor) -> None:
    """See Ops.cache_write; an entry on no page is not noticed."""
    count, entry = entries.shape[0], paged.entry
    to = plane(device, "cache_write: plane", paged, entry)
    pairs = count * to.heads
    device.launch(
        WRITE[to.type],
        blocks_for(pairs, WRITE_THREADS // GROUP),
        WRITE_THREADS,
        0,
        to.data,
        to.scales,
        to.table,
        integers(device, "cache_write: slots", slots, (count,)),
        integers(device, "cache_write: entries", entries, (count,)),
        floats(device, "cache_write: x", x, (count, *entry)),
        pairs,
        to.page,
        to.pages_per_slot,
        to.heads,
        to.dim,
    )


def pool_blocks(device: Device, raw: PagedPlane, slots: torch.Tensor, blocks: torch.Tensor, ratio: int) -> torch.Tensor:
    """See Ops.pool_blocks; a block on no page is not noticed."""
    if ratio < 1:
        raise ValueError(f"pool_blocks: ratio {ratio} must be at least 1")
    count, dim = blocks.shape[0], raw.data.shape[2]
    source = plane(device, "pool_blocks: raw", raw, (dim,))
    if source.type != "f32":
        raise ValueError(f"pool_blocks: expected a plane of float32, found {source.type}")
    out = device.empty(count, dim)
    device.launch(
        POOL,
        blocks_for(out.numel()),
        THREADS,
        0,
        source.data,
        source.table,
        integers(device, "pool_blocks: slots", slots, (count,)),
        integers(device, "pool_blocks: blocks", blocks, (count,)),
        out.data_ptr(),
        out.numel(),
        source.page,
        source.pages_per_slot,
        dim,
        ratio,
    )
    return out
