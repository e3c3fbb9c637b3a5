"""Addresses of tensors for C++, after a check of everything C++ relies on and cannot see."""

import torch

from strata.kernels.views import PagedPlane

PlaneArgs = tuple[int, int, int, int, int, int, int]


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


def plane(what: str, paged: PagedPlane, entry: tuple[int, ...]) -> PlaneArgs:
    """A plane whose entries have the shape `entry`, as csrc/layers_bind.cpp reads it; ValueError otherwise.

    (data, table, pages, page, slots, pages per slot, floats per entry).
    """
    data, table = paged.data, paged.table
    pages, page = data.shape[:2]
    if page < 1:
        raise ValueError(f"{what}: pages of {page} entries")
    slots, pages_per_slot = table.shape
    width = 1
    for n in entry:
        width *= n
    address = floats(f"{what}.data", data, (pages, page, *entry))
    return address, integers(f"{what}.table", table, (slots, pages_per_slot)), pages, page, slots, pages_per_slot, width
