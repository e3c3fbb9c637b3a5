"""Addresses of tensors for device kernels, after a check of everything a kernel relies on and cannot see."""

from dataclasses import dataclass

import torch

from strata.kernels.device import Device
from strata.kernels.views import KV_BLOCK, KvType, PagedPlane, Rows

KV_TYPES: dict[torch.dtype, KvType] = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int8: "int8"}


def address(device: Device, what: str, x: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    """Address of a contiguous tensor of this type and shape on the device; ValueError otherwise."""
    if x.dtype is dtype and x.shape == shape and x.device == device.torch_device and x.is_contiguous():
        return x.data_ptr()
    found = f"{x.dtype} {tuple(x.shape)} on {x.device}{'' if x.is_contiguous() else ', not contiguous'}"
    expected = f"contiguous {dtype} {tuple(shape)} on {device.torch_device}"
    raise ValueError(f"{what}: expected {expected}, found {found}")


def reachable(device: Device, what: str, x: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    """`address` of a tensor on the device, or in pinned memory of the host, where the device sees it, too."""
    elsewhere = x.device != device.torch_device
    if elsewhere and x.dtype is dtype and x.shape == shape and x.is_contiguous() and x.is_pinned():
        return x.data_ptr()
    return address(device, what, x, dtype, shape)


def floats(device: Device, what: str, x: torch.Tensor, shape: tuple[int, ...]) -> int:
    """`address` of float32."""
    return address(device, what, x, torch.float32, shape)


def integers(device: Device, what: str, x: torch.Tensor, shape: tuple[int, ...]) -> int:
    """`address` of int32."""
    return address(device, what, x, torch.int32, shape)


def held_segments(device: Device, op: str, rows: Rows) -> int:
    """Address of which segments are held, 0 where none is; ValueError when there is not one for every segment."""
    return 0 if rows.held is None else integers(device, f"{op}: held", rows.held, (rows.segments.shape[0],))


@dataclass(frozen=True, slots=True)
class PlaneAddresses:
    """A paged plane as kernels take it; `scales` is 0 but for int8."""

    data: int
    scales: int
    table: int
    page: int
    pages_per_slot: int
    heads: int
    dim: int
    type: KvType


def plane(device: Device, what: str, paged: PagedPlane, entry: tuple[int, ...]) -> PlaneAddresses:
    """A plane whose entries have the shape `entry`; ValueError otherwise."""
    data, table = paged.data, paged.table
    pages, page = data.shape[0], data.shape[-2]
    slots, pages_per_slot = table.shape
    *heads, dim = entry
    if data.dtype not in KV_TYPES:
        raise ValueError(f"{what}: expected a plane of float32, bfloat16 or int8, found {data.dtype}")
    at = address(device, f"{what}.data", data, data.dtype, (pages, *heads, page, dim))
    pages_at = integers(device, f"{what}.table", table, (slots, pages_per_slot))
    scales = 0
    if data.dtype is torch.int8:
        if paged.scales is None or dim % KV_BLOCK:
            raise ValueError(f"{what}: int8 needs scales and heads of a multiple of {KV_BLOCK} values, found {entry}")
        scales = floats(device, f"{what}.scales", paged.scales, (pages, *heads, page, dim // KV_BLOCK))
    return PlaneAddresses(
        at, scales, pages_at, page, pages_per_slot, heads[0] if heads else 1, dim, KV_TYPES[data.dtype]
    )
