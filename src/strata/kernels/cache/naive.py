"""Specification of cache_write and pool_blocks.

cache_write works in the order of the list; entry -1 is no entry. A float32 plane gets the bits; a bfloat16 plane the
upper half of them, rounded to nearest even (a NaN stays one: the quiet bit is set); an int8 plane codes and
scales of each 32 values of the last axis by docs/numerics.md 1.1. attention/naive.py reads them.

pool_blocks starts from the block's first key, adds the others in increasing order (one rounding each) and divides by
float32(ratio), IEEE division; the mean of block -1 is 0.
"""

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.attention.naive import gather
from strata.kernels.exact import Array32, quantise_rows
from strata.kernels.views import PagedPlane

NO_ENTRY = -1
"""In a list of entries or blocks: nothing here."""


def cache_write(plane: PagedPlane, slots: torch.Tensor, entries: torch.Tensor, x: torch.Tensor) -> None:
    """See Ops.cache_write; IndexError, with nothing written, when an entry lies on no page."""
    data, table = plane.data, plane.table.numpy()
    if tuple(x.shape) != (entries.shape[0], *plane.entry):
        raise ValueError(f"cache_write: x {tuple(x.shape)} does not fit {len(entries)} entries of {plane.entry}")
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
            write(plane, place, row)


def write(plane: PagedPlane, place: tuple[int, int], row: Array32) -> None:
    """One entry, in the plane's type."""
    at = plane.at(*place)
    if plane.data.dtype is torch.bfloat16:
        plane.data.view(torch.int16).numpy()[at] = bf16_bits(row).view(np.int16)
    elif plane.scales is not None:
        coded = quantise_rows(row.reshape(-1, row.shape[-1]))
        plane.data.numpy()[at] = coded.q.reshape(row.shape)
        plane.scales.numpy()[at] = coded.d.reshape(*row.shape[:-1], -1)
    else:
        plane.data.numpy()[at] = row


def bf16_bits(x: Array32) -> npt.NDArray[np.uint16]:
    """The upper halves of x, rounded to nearest even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


def pool_blocks(raw: PagedPlane, slots: torch.Tensor, blocks: torch.Tensor, ratio: int) -> torch.Tensor:
    """See Ops.pool_blocks."""
    if ratio < 1:
        raise ValueError(f"pool_blocks: ratio {ratio} must be at least 1")
    out = np.empty((len(blocks), raw.entry[-1]), np.float32)
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
