"""cache_write and pool_blocks in C++ (csrc/layers_cache.cpp, layers_small.cpp); bits as cache/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import float_plane, floats, integers, plane
from strata.kernels.native import Native
from strata.kernels.views import PagedPlane


def cache_write(native: Native, paged: PagedPlane, slots: torch.Tensor, entries: torch.Tensor, x: torch.Tensor) -> None:
    """See Ops.cache_write; IndexError, with nothing written, when an entry lies on no page."""
    count = entries.shape[0]
    entry = paged.entry
    _native.cache_write(
        native.handle,
        plane("cache_write: plane", paged, entry),
        integers("cache_write: slots", slots, (count,)),
        integers("cache_write: entries", entries, (count,)),
        floats("cache_write: x", x, (count, *entry)),
        count,
    )


def pool_blocks(native: Native, raw: PagedPlane, slots: torch.Tensor, blocks: torch.Tensor, ratio: int) -> torch.Tensor:
    """See Ops.pool_blocks; IndexError when a block lies on no page."""
    if ratio < 1:
        raise ValueError(f"pool_blocks: ratio {ratio} must be at least 1")
    count, dim = blocks.shape[0], raw.data.shape[2]
    out = native.empty(count, dim)
    _native.pool_blocks(
        native.handle,
        float_plane("pool_blocks: raw", raw, (dim,)),
        integers("pool_blocks: slots", slots, (count,)),
        integers("pool_blocks: blocks", blocks, (count,)),
        count,
        ratio,
        out.data_ptr(),
    )
    return out
