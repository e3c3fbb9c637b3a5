"""How attention is cut for a device: pure numbers (csrc/device/attention_*.h). No choice here shows in a result."""

from dataclasses import dataclass

from strata.kernels.device import Device, Kernel

BLOCK = 256
"""Positions with one maximum (attention/naive.py)."""
TILE_FLOATS = 8192
"""Of keys or values in shared memory."""
MOST_ROWS = 32
"""Of a step whose scores are kept in device memory (verify windows and batch slots); larger steps are prompts."""
MOST_SCRATCH = 128 << 20
"""Bytes of scores and partial results; beyond, positions are taken in several rounds."""
SCORE_THREADS = 128
SUM_THREADS = 256
TYPICAL_BLOCKS = 16
"""Blocks of positions for which the work is spread over the processors: 4,096 positions."""


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


def units_of(num_rows: int, segments: int, heads: int, kv_heads: int, dim: int, single: bool) -> Units:
    """Cuts a step; `single`: every row by itself."""
    most = max(1, min(32, 4096 // dim))
    group = heads // kv_heads
    unit_heads = max(n for n in range(1, min(most, group) + 1) if group % n == 0)
    unit_rows = 1
    if not single and unit_heads == group:
        wanted = -(-num_rows // max(1, segments))
        while unit_rows < wanted and 2 * unit_rows * group <= most:
            unit_rows *= 2
    tiles = num_rows if unit_rows == 1 else (num_rows - segments) // unit_rows + segments
    return Units(dim, unit_heads, unit_rows, heads // unit_heads, tiles)


def slice_of(units: Units, processors: int) -> int:
    """Value dims of a block of the sums: fewer where that gives more processors work."""
    width = units.dim
    while width % 64 == 0 and TYPICAL_BLOCKS * units.parts * units.tiles * (units.dim // width) < 2 * processors:
        width //= 2
    return width


def queries_at_once(units: Units, width: int, least_items: int) -> int:
    """Queries whose sums a thread holds for four dims: many share a value that is read, but threads need work."""
    fitting = [n for n in (8, 4, 2, 1) if units.queries % n == 0]
    return next((n for n in fitting if width // 4 * (units.queries // n) >= least_items), fitting[-1])


def threads_for(items: int, least: int) -> int:
    """A multiple of 32."""
    return max(least, -(-items // 32) * 32)


def keys_of_tile(dim: int) -> int:
    """As csrc/device/attention_dots.h."""
    return 128 if dim <= TILE_FLOATS // 128 else 64 if dim <= TILE_FLOATS // 64 else 32


def kernel_for(device: Device, header: str, defines: dict[str, int]) -> Kernel:
    """A kernel whose shape is compiled in on a GPU; the host's takes every shape as arguments."""
    if device.torch_device.type == "cpu":
        return Kernel(header, header, early=True)
    return Kernel(
        " ".join([header, *(f"ATTENTION_{name}={value}" for name, value in defines.items())]), header, early=True
    )
