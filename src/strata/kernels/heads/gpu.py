"""attention_inputs and an indexer's on a device (csrc/device/heads.h); bits as kernels/joined.py.

Entries are not checked.
"""

import torch

from strata.kernels.addresses import KV_TYPES
from strata.kernels.device import GROUP, Device, Kernel, blocks_for
from strata.kernels.device_addresses import PlaneAddresses, address, floats, integers, plane
from strata.kernels.ops import RopeLayout
from strata.kernels.views import HeadNorms, IndexInputs, PagedPlane, Rows

INPUTS, INDEXED, COMPLETE = (
    Kernel("heads", name, early=True) for name in ("attention_inputs", "indexed_inputs", "complete_blocks")
)
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
    q_out, k_out = device.empty(*q.shape), device.empty(*k.shape)
    known = head_arguments(device, q, k, v, norms, angles, layout, keys, values, rows, q_out, k_out)
    grid = blocks_for(len(q) * (q.shape[1] + 2 * k.shape[1]), THREADS // GROUP)
    device.launch(INPUTS, grid, THREADS, 0, *known, eps_of(norms))
    return q_out, k_out


def head_arguments(
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
    q_out: torch.Tensor,
    k_out: torch.Tensor,
) -> tuple[int, ...]:
    """What the kernels are told of queries, keys and values, in the order of their arguments."""
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
    slots = integers(device, "attention_inputs: slot", rows.slot, (num_rows,))
    positions = integers(device, "attention_inputs: position", rows.position, (num_rows,))
    outputs = (q_out.data_ptr(), k_out.data_ptr(), slots, positions, *where(places[0], keys), *where(places[1], values))
    sizes = (num_rows, heads, kv_heads, kv_heads, dim, half, int(layout == "pairs"), q.stride(0), q.stride(1))
    return (source, k_at, v_at, *weights, cos, sin, *outputs, *sizes)


def eps_of(norms: HeadNorms | None) -> float:
    """Of norms, if there are any."""
    return 0.0 if norms is None else float(norms.eps)


def indexed_inputs(
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
    index: IndexInputs,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See Ops.indexed_inputs; ValueError when shapes do not fit."""
    (num_rows, heads, dim), half = index.q.shape, index.frequencies.shape[0]
    if 2 * half > dim or dim > MOST_DIMS or index.ratio < 1 or half != angles[0].shape[-1]:
        raise ValueError(f"indexed_inputs: {half} angles do not fit keys of {dim}, ratio {index.ratio}")
    raw, blocks = (plane(device, "indexed_inputs: keys", p, (dim,)) for p in (index.raw_keys, index.block_keys))
    if raw.type != "f32" or blocks.type != "f32":
        raise ValueError(f"indexed_inputs: expected planes of float32, found {raw.type} and {blocks.type}")
    q_out, k_out, asked = device.empty(*q.shape), device.empty(*k.shape), device.empty(*index.q.shape)
    known = head_arguments(device, q, k, v, norms, angles, layout, keys, values, rows, q_out, k_out)
    by = address(device, "indexed_inputs: frequencies", device.resident(index.frequencies), torch.float64, (half,))
    sources = (
        floats(device, "indexed_inputs: q", index.q, index.q.shape),
        floats(device, "indexed_inputs: raw", index.raw, (num_rows, dim)),
        weight_of(device, index.norms.q, dim),
        asked.data_ptr(),
    )
    planes = (raw.data, raw.table, raw.page, raw.pages_per_slot)
    made = (blocks.data, blocks.table, blocks.page, blocks.pages_per_slot, weight_of(device, index.norms.k, dim), by)
    numbers = (heads, dim, index.ratio, eps_of(norms), *[float(index.norms.eps)] * 2)
    groups = num_rows * (q.shape[1] + 2 * k.shape[1] + heads + 2)
    device.launch(INDEXED, blocks_for(groups, THREADS // GROUP), THREADS, 0, *known, *sources, *planes, *made, *numbers)
    return q_out, k_out, asked


def index_inputs(
    device: Device,
    q: torch.Tensor,
    raw: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    angles: tuple[torch.Tensor, torch.Tensor],
    layout: RopeLayout,
    raw_keys: PagedPlane,
    rows: Rows,
) -> torch.Tensor:
    """See Ops.index_inputs; the kernel of attention_inputs without keys, the raw key in the values' place."""
    (num_rows, heads, dim), half = q.shape, angles[0].shape[-1]
    if 2 * half > dim or dim > MOST_DIMS or layout not in ("halves", "pairs"):
        raise ValueError(f"index_inputs: layout {layout!r} and {half} angles do not fit heads of {dim}")
    source = floats(device, "index_inputs: q", q, q.shape)
    raw_at = floats(device, "index_inputs: raw", raw, (num_rows, dim))
    cos, sin = (floats(device, "index_inputs: angles", x, (num_rows, half)) for x in angles)
    to, out = where(plane(device, "index_inputs: raw keys", raw_keys, (dim,)), raw_keys), device.empty(*q.shape)
    slots = integers(device, "index_inputs: slot", rows.slot, (num_rows,))
    positions = integers(device, "index_inputs: position", rows.position, (num_rows,))
    known = (source, 0, raw_at, weight_of(device, weight, dim), 0, cos, sin, out.data_ptr(), 0, slots, positions)
    sizes = (num_rows, heads, 0, 1, dim, half, int(layout == "pairs"), heads * dim, dim)
    grid = blocks_for(num_rows * (heads + 1), THREADS // GROUP)
    device.launch(INPUTS, grid, THREADS, 0, *known, *to, *to, *sizes, float(eps))
    return out


def complete_blocks(
    device: Device,
    raw_keys: PagedPlane,
    block_keys: PagedPlane,
    rows: Rows,
    ratio: int,
    weight: torch.Tensor,
    eps: float,
    frequencies: torch.Tensor,
    layout: RopeLayout,
) -> None:
    """See Ops.complete_blocks; ValueError when shapes do not fit."""
    num_rows, dim, half = rows.slot.shape[0], weight.shape[0], frequencies.shape[0]
    if ratio < 1 or 2 * half > dim or dim > MOST_DIMS or layout not in ("halves", "pairs"):
        raise ValueError(
            f"complete_blocks: layout {layout!r} and {half} angles do not fit keys of {dim}, ratio {ratio}"
        )
    raw, to = (plane(device, "complete_blocks: keys", each, (dim,)) for each in (raw_keys, block_keys))
    if raw.type != "f32" or to.type != "f32":
        raise ValueError(f"complete_blocks: expected planes of float32, found {raw.type} and {to.type}")
    by = address(device, "complete_blocks: frequencies", device.resident(frequencies), torch.float64, (half,))
    planes = (raw.data, raw.table, raw.page, raw.pages_per_slot, to.data, to.table, to.page, to.pages_per_slot)
    slots = integers(device, "complete_blocks: slot", rows.slot, (num_rows,))
    positions = integers(device, "complete_blocks: position", rows.position, (num_rows,))
    known = (*planes, weight_of(device, weight, dim), by, slots, positions)
    sizes = (num_rows, dim, half, int(layout == "pairs"), ratio)
    device.launch(COMPLETE, blocks_for(num_rows, THREADS // GROUP), THREADS, 0, *known, *sizes, float(eps))


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
