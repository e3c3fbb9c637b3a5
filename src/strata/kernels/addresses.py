"""Addresses of tensors for C++, after a check of everything C++ relies on and cannot see."""

import torch

from strata.kernels.views import KV_BLOCK, PagedPlane, Rows

PlaneArgs = tuple[int, int, int, int, int, int, int, int, int, int]
KV_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
"""The extension's number of each type of plane (csrc/layers_plane.h)."""


def _refuse(what: str, x: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> ValueError:
    found = f"{x.dtype} {tuple(x.shape)} on {x.device}{'' if x.is_contiguous() else ', not contiguous'}"
    return ValueError(f"{what}: expected contiguous {dtype} {shape} on the CPU, found {found}")


def floats(what: str, x: torch.Tensor, shape: tuple[int, ...]) -> int:
    """Address of a contiguous float32 CPU tensor of this shape; ValueError otherwise."""
    if x.dtype is torch.float32 and x.shape == shape and x.is_cpu and x.is_contiguous():
        return x.data_ptr()
    raise _refuse(what, x, torch.float32, shape)


def integers(what: str, x: torch.Tensor, shape: tuple[int, ...]) -> int:
    """Address of a contiguous int32 CPU tensor of this shape; ValueError otherwise."""
    if x.dtype is torch.int32 and x.shape == shape and x.is_cpu and x.is_contiguous():
        return x.data_ptr()
    raise _refuse(what, x, torch.int32, shape)


def held_segments(op: str, rows: Rows) -> int:
    """Address of which segments are held, 0 where none is; ValueError when there is not one for every segment."""
    return 0 if rows.held is None else integers(f"{op}: held", rows.held, (rows.segments.shape[0],))


def contiguous(what: str, x: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    """Address of a contiguous CPU tensor of this type and shape; ValueError otherwise."""
    if x.dtype is dtype and x.shape == shape and x.is_cpu and x.is_contiguous():
        return x.data_ptr()
    raise _refuse(what, x, dtype, shape)


def float_plane(what: str, paged: PagedPlane, entry: tuple[int, ...]) -> PlaneArgs:
    """`plane`, which must hold float32."""
    if paged.data.dtype is not torch.float32:
        raise ValueError(f"{what}: expected a plane of float32, found {paged.data.dtype}")
    return plane(what, paged, entry)


def plane(what: str, paged: PagedPlane, entry: tuple[int, ...]) -> PlaneArgs:
    """A plane whose entries have the shape `entry`, as csrc/attention_bind.cpp reads it; ValueError otherwise.

    (data, table, pages, page, slots, pages per slot, heads, values per head, type, scales or 0).
    """
    data, table = paged.data, paged.table
    pages, page = data.shape[0], data.shape[-2]
    if page < 1:
        raise ValueError(f"{what}: pages of {page} entries")
    slots, pages_per_slot = table.shape
    *heads, dim = entry
    if data.dtype not in KV_TYPES:
        raise ValueError(f"{what}: expected a plane of float32, bfloat16 or int8, found {data.dtype}")
    address = contiguous(f"{what}.data", data, data.dtype, (pages, *heads, page, dim))
    pages_at = integers(f"{what}.table", table, (slots, pages_per_slot))
    scales = 0
    if data.dtype is torch.int8:
        if paged.scales is None or dim % KV_BLOCK:
            raise ValueError(f"{what}: int8 needs scales and heads of a multiple of {KV_BLOCK} values, found {entry}")
        scales = floats(f"{what}.scales", paged.scales, (pages, *heads, page, dim // KV_BLOCK))
    num_heads, code = heads[0] if heads else 1, KV_TYPES[data.dtype]
    return address, pages_at, pages, page, slots, pages_per_slot, num_heads, dim, code, scales
