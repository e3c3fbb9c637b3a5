"""Specification of cache_write and pool_blocks.

cache_write copies bits, in the order of the list; entry -1 is no entry. pool_blocks starts from the block's first key,
adds the others in increasing order (one rounding each) and divides by float32(ratio), IEEE division; the mean of block
-1 is 0.
"""

import numpy as np
import torch

from strata.kernels.attention.naive import gather
from strata.kernels.views import PagedPlane

NO_ENTRY = -1
"""In a list of entries or blocks: nothing here."""


def cache_write(plane: PagedPlane, slots: torch.Tensor, entries: torch.Tensor, x: torch.Tensor) -> None:
    """See Ops.cache_write; IndexError, with nothing written, when an entry lies on no page."""
    data, table = plane.data.numpy(), plane.table.numpy()
    if tuple(x.shape) != (entries.shape[0], *data.shape[2:]):
        raise ValueError(f"cache_write: x {tuple(x.shape)} does not fit {len(entries)} entries of {data.shape[2:]}")
    places: list[tuple[int, int] | None] = []
    for slot, entry in zip(slots.tolist(), entries.tolist(), strict=True):
        if entry == NO_ENTRY:
            places.append(None)
            continue
        if not (0 <= slot < table.shape[0] and 0 <= entry < table.shape[1] * plane.page):
            raise IndexError(f"cache_write: slot {slot} has no entry {entry}")
        page = int(table[slot, entry // plane.page])
        if not 0 <= page < data.shape[0]:
            raise IndexError(f"cache_write: slot {slot}: page {page} is outside 0 .. {data.shape[0] - 1}")
        places.append((page, entry % plane.page))
    for place, row in zip(places, x.numpy(), strict=True):
        if place is not None:
            data[place] = row


def pool_blocks(raw: PagedPlane, slots: torch.Tensor, blocks: torch.Tensor, ratio: int) -> torch.Tensor:
    """See Ops.pool_blocks."""
    if ratio < 1:
        raise ValueError(f"pool_blocks: ratio {ratio} must be at least 1")
    out = np.empty((len(blocks), int(raw.data.shape[2])), np.float32)
    for i, (slot, block) in enumerate(zip(slots.tolist(), blocks.tolist(), strict=True)):
        if block == NO_ENTRY:
            out[i] = 0
            continue
        members = gather(raw, slot, np.arange(block * ratio, (block + 1) * ratio, dtype=np.int32))
        total = members[0]
        with np.errstate(all="ignore"):
            for member in members[1:]:
                total = total + member
            out[i] = total / np.float32(ratio)
    return torch.from_numpy(out)
