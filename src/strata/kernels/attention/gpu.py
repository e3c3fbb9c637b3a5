"""attention on a device (csrc/device/attention_*.h); bits as attention/naive.py.

A few rows: scores, sums of blocks and their merge are three kernels over all positions that the cache can hold; what
lies beyond a row's position is skipped where the kernels run, so a captured step serves every length. Many rows: one
kernel that goes through the positions. Entries are not checked: the state hands out pages before a step.
"""

from dataclasses import dataclass

import torch

from strata.kernels.attention.gpu_plan import (
    BLOCK,
    MOST_ROWS,
    MOST_SCRATCH,
    SCORE_THREADS,
    SUM_THREADS,
    TILE_FLOATS,
    Units,
    kernel_for,
    keys_of_tile,
    queries_at_once,
    slice_of,
    threads_for,
    units_of,
)
from strata.kernels.device import Device, Kernel
from strata.kernels.device_addresses import PlaneAddresses, floats, integers, plane
from strata.kernels.views import PagedPlane, Rows

MERGE = Kernel("attention_merge", "attention_merge", early=True)
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
    out = device.empty(*q.shape)
    call = Call(
        q=floats(device, f"{op}: q", q, (num_rows, heads, dim)),
        out=out.data_ptr(),
        keys=plane(device, f"{op}: keys", keys, (kv_heads, dim)),
        values=plane(device, f"{op}: values", values, (kv_heads, dim)),
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
    units = units_of(num_rows, call.num_segments, heads, kv_heads, dim, bool(listed.count))
    if num_rows > MOST_ROWS:
        attend_many(device, call, units)
    else:
        attend_few(device, call, units)
    return out


def attend_few(device: Device, call: Call, units: Units) -> None:
    """Scores, sums and merge, in as many rounds over the positions as their memory needs."""
    queries, blocks = call.rows * call.heads, max(1, -(-call.positions // BLOCK))
    at_once = max(1, min(blocks, MOST_SCRATCH // (4 * queries * (BLOCK + units.dim + 2))))
    scores = device.empty(queries, at_once * BLOCK)
    tops, totals = (device.empty(queries, at_once) for _ in range(2))
    sums = device.empty(queries, at_once, units.dim)
    state = device.empty(queries, 2)
    for first in range(0, blocks, at_once):
        launch_scores(device, call, units, scores, first * BLOCK)
        launch_sums(device, call, units, scores, (tops, totals, sums), first * BLOCK)
        device.launch(
            MERGE,
            (queries, 1, 1),
            threads_for(units.dim, 32),
            0,
            tops.data_ptr(),
            totals.data_ptr(),
            sums.data_ptr(),
            call.position,
            call.listed.count,
            state.data_ptr(),
            call.out,
            call.heads,
            units.dim,
            first * BLOCK,
            at_once,
            int(first + at_once >= blocks),
        )


def launch_scores(device: Device, call: Call, units: Units, scores: torch.Tensor, first: int) -> None:
    """Scores of the entries from `first` on."""
    keys, width = call.keys, scores.shape[1]
    threads, num_keys = SCORE_THREADS, keys_of_tile(units.dim)
    tiles = -(-min(width, max(1, call.positions - first)) // num_keys)
    loops = max(1, 8 * device.processors // (units.parts * units.tiles))
    defines = shape_defines(units, threads) | {"KEYS_PAGE": keys.page, "KEYS_TYPE": TYPES[keys.type]}
    device.launch(
        kernel_for(device, "attention_scores", defines),
        (min(tiles, loops), units.parts, units.tiles),
        threads,
        4 * units.dim * (num_keys + units.queries) + 8 * num_keys,
        call.q,
        keys.data,
        keys.scales,
        keys.table,
        call.segments,
        call.slot,
        call.position,
        call.listed.positions,
        call.listed.count,
        scores.data_ptr(),
        call.rows,
        call.num_segments,
        call.heads,
        call.kv_heads,
        keys.pages_per_slot,
        call.listed.width,
        first,
        width,
        call.scale,
        units.dim,
        units.heads,
        units.rows,
        keys.page,
        TYPES[keys.type],
    )


def launch_sums(
    device: Device,
    call: Call,
    units: Units,
    scores: torch.Tensor,
    partials: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    first: int,
) -> None:
    """Softmax and sums of each block of entries from `first` on."""
    values, blocks = call.values, partials[0].shape[1]
    width = slice_of(units, device.processors)
    each = queries_at_once(units, width, 128)
    threads = threads_for(width // 4 * (units.queries // each), SUM_THREADS)
    parts = units.parts * (units.dim // width)
    loops = max(1, 8 * device.processors // (parts * units.tiles))
    defines = shape_defines(units, threads) | {
        "VALUES_PAGE": values.page,
        "VALUES_TYPE": TYPES[values.type],
        "SLICE": width,
        "QUERIES": each,
    }
    device.launch(
        kernel_for(device, "attention_sums", defines),
        (min(blocks, loops), parts, units.tiles),
        threads,
        4 * (TILE_FLOATS + units.queries * (BLOCK + 4)),
        scores.data_ptr(),
        values.data,
        values.scales,
        values.table,
        call.segments,
        call.slot,
        call.position,
        call.listed.positions,
        call.listed.count,
        *(t.data_ptr() for t in partials),
        call.rows,
        call.num_segments,
        call.heads,
        call.kv_heads,
        values.pages_per_slot,
        call.listed.width,
        first,
        blocks,
        width,
        each,
        units.dim,
        units.heads,
        units.rows,
        values.page,
        TYPES[values.type],
    )


def attend_many(device: Device, call: Call, units: Units) -> None:
    """One kernel: a block of threads for a unit, through all its positions."""
    keys, values = call.keys, call.values
    each = next(n for n in (8, 4, 2, 1) if units.queries % n == 0)
    threads = threads_for(units.dim // 4 * (units.queries // each), 64)
    queries = -(-units.queries * units.dim // 4) * 4 + units.queries * (BLOCK + 8)
    shared = max(TILE_FLOATS, 32 * units.dim) + queries + 2 * BLOCK
    defines = shape_defines(units, threads) | {
        "KEYS_PAGE": keys.page,
        "KEYS_TYPE": TYPES[keys.type],
        "VALUES_PAGE": values.page,
        "VALUES_TYPE": TYPES[values.type],
        "QUERIES": each,
    }
    device.launch(
        kernel_for(device, "attention_whole", defines),
        (units.tiles, units.parts, 1),
        threads,
        4 * shared,
        call.q,
        keys.data,
        keys.scales,
        keys.table,
        values.data,
        values.scales,
        values.table,
        call.segments,
        call.slot,
        call.position,
        call.listed.positions,
        call.listed.count,
        call.out,
        call.rows,
        call.num_segments,
        call.heads,
        call.kv_heads,
        keys.pages_per_slot,
        values.pages_per_slot,
        call.listed.width,
        call.scale,
        each,
        units.dim,
        units.heads,
        units.rows,
        keys.page,
        TYPES[keys.type],
        values.page,
        TYPES[values.type],
    )


def shape_defines(units: Units, threads: int) -> dict[str, int]:
    """What all attention kernels are compiled for."""
    return {"DIM": units.dim, "HEADS": units.heads, "ROWS": units.rows, "THREADS": threads}
