"""How attention is cut for a device: pure numbers (csrc/device/attention_*.h). No choice here shows in a result."""

from dataclasses import dataclass

from strata.kernels.device import Device, Kernel

BLOCK = 256
"""Positions with one maximum (attention/naive.py)."""
TILE_FLOATS = 8192
"""Of keys or values in shared memory."""
MOST_ROWS = 32
"""Of a step whose positions are shared out (verify windows and batch slots); larger steps are prompts."""
MOST_SCRATCH = 128 << 20
"""Bytes of partial results; beyond, rows are taken in several launches."""
MOST_FEW_DIMS = 256
"""Of a head of the kernel for few rows."""
MOST_UNIT_QUERIES = 32
"""Of a unit; of fewer dims, as many as have 4,096 values."""
RING_SLOTS = 3
"""Of keys and values in its shared memory (csrc/device/attention_ring.h)."""
PART_QUERIES = 8
"""Queries that a thread block does at once, at most."""


@dataclass(frozen=True, slots=True)
class Units:
    """A unit is `rows` rows of one slot with `heads` query heads of one KV head; the grid has parts x tiles of them."""

    dim: int
    heads: int
    rows: int
    parts: int
    tiles: int

    @property
    def queries(self) -> int:
        """Of a unit."""
        return self.rows * self.heads


def units_of(
    num_rows: int,
    segments: int,
    heads: int,
    kv_heads: int,
    dim: int,
    single: bool,
    most: int = MOST_UNIT_QUERIES,
    values: int = 4096,
) -> Units:
    """Cuts a step into units of up to `most` queries of `values` values together; `single`: every row by itself."""
    most = max(1, min(most, values // dim))
    group = heads // kv_heads
    unit_heads = max(n for n in range(1, min(most, group) + 1) if group % n == 0)
    unit_rows = 1
    if not single and unit_heads == group:
        wanted = -(-num_rows // max(1, segments))
        while unit_rows < wanted and 2 * unit_rows * group <= most:
            unit_rows *= 2
    tiles = num_rows if unit_rows == 1 else (num_rows - segments) // unit_rows + segments
    return Units(dim, unit_heads, unit_rows, heads // unit_heads, tiles)


def thread_blocks(device: Device, units: Units, tiles: int, blocks: int) -> int:
    """Of each unit: as many in all as are at work at once, while there is work for as many."""
    beside = 2 if units.dim <= 128 else 1  # on a processor: heads of more values take all its registers
    return max(1, min(blocks * units.queries, -(-beside * device.processors // (units.parts * tiles))))


def few_shared(device: Device, dim: int, scaled: bool) -> int:
    """Shared memory of the kernel for few rows; `scaled`: keys or values have scales."""
    scores = PART_QUERIES * (BLOCK + 4) * 4 + 4 * PART_QUERIES + 16 + 32
    return (
        RING_SLOTS * device.shared.slot_bytes + scores + 2 * 4 * BLOCK + (2 * BLOCK * (dim // 32) * 4 if scaled else 0)
    )


SPLIT_DIM, SPLIT_KEYS, SPLIT_KEY = 128, 64, 164
"""Of heads whose dots are shared by lanes; keys of a tile of theirs, floats of one (csrc/device/attention_split.h)."""


@dataclass(frozen=True, slots=True)
class Many:
    """How many rows are cut: a thread sums `each` queries at once, and a tile of keys or values has `tile` values."""

    units: Units
    each: int
    threads: int
    tile: int

    @property
    def shared_bytes(self) -> int:
        """A tile, queries, their scores and states, where keys and values lie (csrc/device/attention_whole.h)."""
        queries, dim = self.units.queries, self.units.dim
        keys = SPLIT_KEYS * SPLIT_KEY if dim == SPLIT_DIM else 0
        return 4 * (max(self.tile, 32 * dim, keys) + -(-queries * dim // 4) * 4 + queries * (BLOCK + 8) + 2 * BLOCK)


def cut_many(units: Units, tile: int) -> Many:
    """A thread for four dims of as many queries, up to 8, as divide those of a unit."""
    each = next(n for n in (8, 4, 2, 1) if units.queries % n == 0)
    return Many(units, each, threads_for(units.dim // 4 * (units.queries // each), 64), tile)


def large(dim: int) -> tuple[int, int]:
    """(values of a unit's queries, of a tile) where a processor holds one block: each key serves more queries."""
    return 8192, 4 * TILE_FLOATS if dim > 128 else TILE_FLOATS


def threads_for(items: int, least: int) -> int:
    """A multiple of 32."""
    return max(least, -(-items // 32) * 32)


def kernel_for(device: Device, header: str, defines: dict[str, int]) -> Kernel:
    """A kernel whose shape is compiled in on a GPU; the host's takes every shape as arguments."""
    if device.torch_device.type == "cpu":
        return Kernel(header, header, early=True)
    return Kernel(
        " ".join([header, *(f"ATTENTION_{name}={value}" for name, value in defines.items())]), header, early=True
    )
