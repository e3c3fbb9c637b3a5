"""attention on a device (csrc/device/attention_*.h); bits as attention/naive.py.

A few rows: one kernel whose thread blocks share out all positions that a row sees; how many those are it finds where it
runs, so a captured step serves every length. Many rows: one kernel that goes through the positions. Entries are not
checked: the state hands out pages before a step.
"""

from dataclasses import dataclass

import torch

from strata.kernels.attention.gpu_plan import (
    BLOCK,
    MOST_FEW_DIMS,
    MOST_ROWS,
    MOST_SCRATCH,
    MOST_UNIT_QUERIES,
    TILE_FLOATS,
    Many,
    Units,
    cut_many,
    few_shared,
    kernel_for,
    large,
    thread_blocks,
    units_of,
)
from strata.kernels.device import GROUP, Device
from strata.kernels.device_addresses import PlaneAddresses, floats, integers, plane
from strata.kernels.linear.launch import beside
from strata.kernels.views import PagedPlane, Rows

FEW_THREADS = 256
PART_WORDS = 32
"""Words of a unit in which its thread blocks are counted (csrc/device/attention_finish.h)."""
TYPES = {"f32": 0, "bf16": 1, "int8": 2}
CHUNK_VALUES = {"f32": 4, "bf16": 8, "int8": 32}


@dataclass(frozen=True, slots=True)
class Listed:
    """Addresses of the positions of each row (int32 [T, width], increasing) and of their counts (int32 [T])."""

    positions: int
    count: int
    width: int


@dataclass(frozen=True, slots=True)
class Call:
    """Addresses and sizes of one call."""

    q: int
    out: int
    beside: tuple[int, int]
    """Where the result also goes quantised."""
    keys: PlaneAddresses
    values: PlaneAddresses
    slot: int
    position: int
    segments: int
    num_segments: int
    rows: int
    heads: int
    kv_heads: int
    scale: float
    listed: Listed

    @property
    def positions(self) -> int:
        """Entries that a row can see at most."""
        held = min(p.page * p.pages_per_slot for p in (self.keys, self.values))
        return self.listed.width if self.listed.count else held


def attention(
    device: Device, q: torch.Tensor, keys: PagedPlane, values: PagedPlane, rows: Rows, scale: float
) -> torch.Tensor:
    """See Ops.attention; ValueError when shapes do not fit. A row that sees an entry without a page is not noticed."""
    return attend(device, "attention", q, keys, values, rows, scale, Listed(0, 0, 0))


def attend(
    device: Device,
    op: str,
    q: torch.Tensor,
    keys: PagedPlane,
    values: PagedPlane,
    rows: Rows,
    scale: float,
    listed: Listed,
) -> torch.Tensor:
    """Attention over all positions up to a row's own, or over a list of them."""
    num_rows, heads, dim = q.shape
    kv_heads = keys.data.shape[1]
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"{op}: {heads} query heads are no multiple of {kv_heads} KV heads")
    out = device.empty(num_rows, heads * dim)
    keys_at = plane(device, f"{op}: keys", keys, (kv_heads, dim))
    values_at = plane(device, f"{op}: values", values, (kv_heads, dim))
    shared_bytes = few_shared(device, dim, bool(keys_at.scales or values_at.scales))
    few = num_rows <= MOST_ROWS and dim <= MOST_FEW_DIMS and shared_bytes <= device.shared.dynamic
    call = Call(
        q=floats(device, f"{op}: q", q, (num_rows, heads, dim)),
        out=out.data_ptr(),
        beside=beside(device, out) if few and dim % GROUP == 0 else (0, 0),
        keys=keys_at,
        values=values_at,
        slot=integers(device, f"{op}: slot", rows.slot, (num_rows,)),
        position=integers(device, f"{op}: position", rows.position, (num_rows,)),
        segments=integers(device, f"{op}: segments", rows.segments, (rows.segments.shape[0], 3)),
        num_segments=rows.segments.shape[0],
        rows=num_rows,
        heads=heads,
        kv_heads=kv_heads,
        scale=scale,
        listed=listed,
    )
    for part in (call.keys, call.values):
        if dim % CHUNK_VALUES[part.type]:
            raise ValueError(
                f"{op}: {part.type} heads of {dim} values, expected a multiple of {CHUNK_VALUES[part.type]}"
            )
    if few:
        units = units_of(num_rows, call.num_segments, heads, kv_heads, dim, bool(listed.count))
        attend_few(device, call, units, shared_bytes)
    else:
        attend_many(device, call, cut(device, call, dim))
    return out


def attend_few(device: Device, call: Call, units: Units, shared_bytes: int) -> None:
    """Tiles of rows, as many at once as their partial results have room for."""
    queries, blocks = units.parts * units.queries, max(1, -(-call.positions // BLOCK))
    at_once = max(1, min(units.tiles, MOST_SCRATCH // (4 * queries * blocks * (units.dim + 2))))
    tops, totals = (device.empty(at_once * queries, blocks) for _ in range(2))
    sums = device.empty(at_once * queries, blocks, units.dim)
    arrived = device.counters(at_once * units.parts * PART_WORDS)
    keys, values = call.keys, call.values
    kernel = kernel_for(device, "attention_few", shape_defines(units, FEW_THREADS) | type_defines(call))
    for first in range(0, units.tiles, at_once):
        tiles = min(at_once, units.tiles - first)
        device.launch(
            kernel,
            (thread_blocks(device, units, tiles, blocks), units.parts, tiles),
            FEW_THREADS,
            shared_bytes,
            call.q,
            *sources(call),
            *(t.data_ptr() for t in (tops, totals, sums, arrived)),
            call.out,
            *call.beside,
            call.rows,
            call.num_segments,
            call.heads,
            call.kv_heads,
            keys.pages_per_slot,
            values.pages_per_slot,
            call.listed.width,
            first,
            units.parts,
            blocks,
            call.scale,
            *sizes_of(call, units),
        )


def cut(device: Device, call: Call, dim: int) -> Many:
    """Large units where the shared memory allows them and there are enough of them for all processors."""
    shape = call.rows, call.num_segments, call.heads, call.kv_heads, dim, bool(call.listed.count)
    values, tile = large(dim)
    wide = cut_many(units_of(*shape, 2 * MOST_UNIT_QUERIES, values), tile)
    enough = wide.units.tiles * wide.units.parts >= device.processors
    if enough and wide.shared_bytes <= device.shared.dynamic:
        return wide
    return cut_many(units_of(*shape), TILE_FLOATS)


def attend_many(device: Device, call: Call, many: Many) -> None:
    """One kernel: a block of threads for a unit, through all its positions."""
    keys, values, units = call.keys, call.values, many.units
    defines = shape_defines(units, many.threads) | type_defines(call) | {"QUERIES": many.each, "TILE": many.tile}
    device.launch(
        kernel_for(device, "attention_whole", defines),
        (units.tiles, units.parts, 1),
        many.threads,
        many.shared_bytes,
        call.q,
        *sources(call),
        call.out,
        call.rows,
        call.num_segments,
        call.heads,
        call.kv_heads,
        keys.pages_per_slot,
        values.pages_per_slot,
        call.listed.width,
        call.scale,
        many.each,
        *sizes_of(call, units),
    )


def shape_defines(units: Units, threads: int) -> dict[str, int]:
    """What all attention kernels are compiled for."""
    return {"DIM": units.dim, "HEADS": units.heads, "ROWS": units.rows, "THREADS": threads}


def type_defines(call: Call) -> dict[str, int]:
    """What kernels that read keys and values are compiled for."""
    keys, values = call.keys, call.values
    return {
        "KEYS_PAGE": keys.page,
        "KEYS_TYPE": TYPES[keys.type],
        "VALUES_PAGE": values.page,
        "VALUES_TYPE": TYPES[values.type],
    }


def sources(call: Call) -> tuple[int, ...]:
    """What such kernels read beside queries."""
    keys, values, listed = call.keys, call.values, call.listed
    planes = (keys.data, keys.scales, keys.table, values.data, values.scales, values.table)
    return *planes, call.segments, call.slot, call.position, listed.positions, listed.count


def sizes_of(call: Call, units: Units) -> tuple[int, ...]:
    """Their last arguments, which are compiled in on a GPU."""
    keys, values = call.keys, call.values
    return units.dim, units.heads, units.rows, keys.page, TYPES[keys.type], values.page, TYPES[values.type]
