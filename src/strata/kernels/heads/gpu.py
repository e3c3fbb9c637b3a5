"""attention_inputs on a device (csrc/device/heads.h); bits as kernels/joined.py. Entries are not checked."""

import torch

from strata.kernels.addresses import KV_TYPES
from strata.kernels.device import GROUP, Device, Kernel, blocks_for
from strata.kernels.device_addresses import PlaneAddresses, floats, integers, plane
from strata.kernels.ops import RopeLayout
from strata.kernels.views import HeadNorms, PagedPlane, Rows

INPUTS = Kernel("heads", "attention_inputs", early=True)
THREADS = 128
MOST_DIMS = 256
"""Of a head whose values a group of lanes keeps."""


def attention_inputs(
    device: Device,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    norms: HeadNorms | None,
    angles: tuple[torch.Tensor, torch.Tensor],
    layout: RopeLayout,
    keys: PagedPlane,
    values: PagedPlane,
    rows: Rows,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.attention_inputs; ValueError when shapes do not fit. An entry on no page is not noticed."""
    (num_rows, heads, dim), kv_heads, half = q.shape, k.shape[1], angles[0].shape[-1]
    if 2 * half > dim or dim > MOST_DIMS or layout not in ("halves", "pairs"):
        raise ValueError(f"attention_inputs: layout {layout!r} and {half} angles do not fit heads of {dim}")
    entry = (kv_heads, dim)
    source = strided("attention_inputs: q", device, q)
    k_at, v_at = (
        floats(device, f"attention_inputs: {name}", x, (num_rows, *entry)) for name, x in (("k", k), ("v", v))
    )
    cos, sin = (floats(device, "attention_inputs: angles", x, (num_rows, half)) for x in angles)
    weights = (0, 0) if norms is None else (weight_of(device, norms.q, dim), weight_of(device, norms.k, dim))
    places = [plane(device, f"attention_inputs: {n}", p, entry) for n, p in (("keys", keys), ("values", values))]
    q_out, k_out = device.empty(num_rows, heads, dim), device.empty(num_rows, *entry)
    slots = integers(device, "attention_inputs: slot", rows.slot, (num_rows,))
    positions = integers(device, "attention_inputs: position", rows.position, (num_rows,))
    outputs = (q_out.data_ptr(), k_out.data_ptr(), slots, positions, *where(places[0], keys), *where(places[1], values))
    sizes = (num_rows, heads, kv_heads, dim, half, int(layout == "pairs"), q.stride(0), q.stride(1))
    grid = blocks_for(num_rows * (heads + 2 * kv_heads), THREADS // GROUP)
    eps = 0.0 if norms is None else float(norms.eps)
    device.launch(INPUTS, grid, THREADS, 0, source, k_at, v_at, *weights, cos, sin, *outputs, *sizes, eps)
    return q_out, k_out


def strided(what: str, device: Device, x: torch.Tensor) -> int:
    """Address of float32 [T, heads, d] on the device of which a head's values are neighbours; ValueError otherwise."""
    if x.dtype is torch.float32 and x.device == device.torch_device and (x.stride(2) == 1 or x.shape[2] == 1):
        return x.data_ptr()
    raise ValueError(
        f"{what}: expected float32 on {device.torch_device} with heads in one piece, found {x.dtype} on {x.device}"
    )


def weight_of(device: Device, weight: torch.Tensor, dim: int) -> int:
    """Address of a norm's weights of a head."""
    return floats(device, "attention_inputs: norm", device.resident(weight), (dim,))


def where(at: PlaneAddresses, paged: PagedPlane) -> tuple[int, ...]:
    """A plane in the order of the kernel's arguments."""
    return at.data, at.scales, at.table, at.page, at.pages_per_slot, KV_TYPES[paged.data.dtype]
