"""experts for the many rows of a prompt (csrc/device/prompt_*.h): matrix units, and the bits of experts/naive.py.

The pairs (row, rank) are sorted by expert on the device. Then, some experts at a time: their matrices are unpacked into
panels, and tiles of 64 pairs of one expert meet them. An expert's bytes are read once for a call, from wherever its
address leads: memory of the device, or host memory that is mapped for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats, integers
from strata.kernels.experts import gpu
from strata.kernels.experts.table import ExpertTable
from strata.kernels.linear import prompt
from strata.kernels.native import FORMAT_CODES
from strata.quant.format import QuantFormat

GROUP_UNIT = "prompt_group"

PANEL_BYTES = 384 << 20
"""Unpacked matrices that wait at once, about."""

MOST_ROWS = 8192
"""Rows whose results per expert wait at once; more are done in parts."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """The pairs of some rows by expert, and their tiles (prompt_group.h)."""

    pairs: torch.Tensor
    tiles: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    """int32 [experts]: pairs of each that this device computes."""
    rows: int
    top_k: int
    groups: int
    """Of a block of the products: a tile has up to 64 rows for each."""

    @property
    def count(self) -> int:
        """Pairs, those of other devices' experts too."""
        return self.rows * self.top_k


def is_coded(table: ExpertTable) -> bool:
    """Whether all matrices hold codes, which these kernels need."""
    return all(fmt.kind == "codes" for formats in table.formats for fmt in formats)


def sort(device: Device, ids: torch.Tensor, table: ExpertTable, tier: int = 0) -> Sorted:
    """The pairs of ids int32 [rows, top_k] by the experts that this device computes: those of tiers up to `tier`."""
    (rows, top_k), experts = ids.shape, len(table.entries)
    pairs, groups = rows * top_k, groups_for(device, rows * top_k, table)
    tile = prompt.TILE * groups
    counts, cursors, starts, tiles, found = (
        device.empty(*shape, dtype=torch.int32)
        for shape in ((experts,), (experts,), (experts + 1,), (most_tiles(pairs, experts, tile), 4), (max(1, pairs),))
    )
    known, threads = (ids.data_ptr(), table.entries.data_ptr()), THREADS
    scanned = (counts.data_ptr(), cursors.data_ptr(), starts.data_ptr(), tiles.data_ptr(), experts, tile)
    filled = (*known, cursors.data_ptr(), found.data_ptr(), pairs, tier)
    device.launch(Kernel(GROUP_UNIT, "prompt_zero"), blocks_for(experts), threads, 0, counts.data_ptr(), experts)
    device.launch(
        Kernel(GROUP_UNIT, "prompt_count"), blocks_for(pairs), threads, 0, *known, counts.data_ptr(), pairs, tier
    )
    device.launch(Kernel(GROUP_UNIT, "prompt_scan"), (1, 1, 1), threads, 0, *scanned)
    device.launch(Kernel(GROUP_UNIT, "prompt_fill"), blocks_for(pairs), threads, 0, *filled)
    return Sorted(found, tiles, starts, counts, rows, top_k, groups)


def groups_for(device: Device, pairs: int, table: ExpertTable) -> int:
    """Large tiles of rows where experts have more rows than a small one holds."""
    if pairs <= len(table.entries) * prompt.TILE:
        return prompt.GROUPS[-1]
    return prompt.groups_for(device, [fmt for formats in table.formats for fmt in formats], device.processors)


def count_uses(device: Device, order: Sorted, table: ExpertTable, ledger: torch.Tensor, uses: torch.Tensor) -> None:
    """Add the call to a layer's ledger and uses (kernels/rendezvous/gpu.py), as all on this device."""
    known = (order.counts.data_ptr(), table.entries.data_ptr(), ledger.data_ptr(), uses.data_ptr(), len(table.entries))
    device.launch(Kernel(GROUP_UNIT, "prompt_ledger"), (1, 1, 1), THREADS, 0, *known)


def most_tiles(pairs: int, experts: int, tile: int) -> int:
    """Tiles of so many pairs at most, with up to `tile` rows each."""
    return pairs // tile + min(pairs, experts) + 1


def pack(device: Device, inputs: prompt.PromptInputs, order: Sorted, experts: int, top_k: int) -> prompt.Packed:
    """Records of the tiles' rows; `inputs` has a row for each pair (top_k 0), or one for all ranks."""
    tiles, by = order.tiles.shape[0], {}
    room = order.count // prompt.TILE + min(order.count, experts) + 1
    for sub, rows in inputs.by.items():
        nbytes = room * prompt.stages(inputs.cols) * prompt.record_bytes(sub, minima=True)
        by[sub] = device.empty(nbytes, dtype=torch.uint8)
        sorted_pairs = (order.tiles.data_ptr(), order.starts.data_ptr(), order.pairs.data_ptr())
        sizes = (experts, order.groups, inputs.rows, top_k, inputs.cols, sub)
        grid = prompt.pack_grid(tiles * order.groups, inputs.cols)
        device.launch(prompt.PACK, grid, THREADS, 0, *rows.addresses, *sorted_pairs, by[sub].data_ptr(), *sizes)
    return prompt.Packed(inputs.rows, inputs.cols, by)


def one_matrix(
    device: Device, inputs: prompt.Packed, order: Sorted, table: ExpertTable, kind: int, y: torch.Tensor
) -> None:
    """y [pairs, rows] of gate, up or down (kind 0, 1, 2) from the rows of `pack`."""
    rows = table.hidden if kind == 2 else table.width
    cols, formats, experts = inputs.cols, table.formats[kind], len(table.entries)
    each = rows * cols * 5 // 4
    at_once = max(1, min(experts, PANEL_BYTES // each, 65535))
    room = prompt.panels(device, at_once, rows, cols, formats)
    for first in range(0, experts, at_once):
        count = min(at_once, experts - first)
        for fmt in formats:
            only = FORMAT_CODES[fmt.name] if len(formats) > 1 else -1
            unpack(device, order, table, (first, count), kind, fmt, room, rows, cols)
            products(device, inputs, order, table, (first, count), kind, fmt, room, y, only)


def unpack(
    device: Device,
    order: Sorted,
    table: ExpertTable,
    part: tuple[int, int],
    kind: int,
    fmt: QuantFormat,
    room: prompt.Panels,
    rows: int,
    cols: int,
) -> None:
    """The matrices of the experts first, .., first + count - 1 that have rows and this format, as panels."""
    first, count = part
    known = (table.entries.data_ptr(), order.starts.data_ptr(), first, kind, FORMAT_CODES[fmt.name])
    sizes = (prompt.places_of(device, cols, fmt.sub), rows, cols, room.padded)
    grid = (-(-rows // 32), count, 1)
    kernel = Kernel(f"prompt_unpack STRATA_FORMAT={fmt.name}", "unpack_experts")
    device.launch(kernel, grid, THREADS, prompt.unpack_bytes(device, fmt), *known, room.records.data_ptr(), *sizes)


def products(
    device: Device,
    inputs: prompt.Packed,
    order: Sorted,
    table: ExpertTable,
    part: tuple[int, int],
    kind: int,
    fmt: QuantFormat,
    room: prompt.Panels,
    y: torch.Tensor,
    only: int,
) -> None:
    """The tiles of these experts; with `only` >= 0 of those of them whose matrix has that format."""
    groups = order.groups
    operands = (inputs.by[fmt.sub].data_ptr(), room.records.data_ptr())
    experts = (order.tiles.data_ptr(), order.starts.data_ptr(), order.pairs.data_ptr(), table.entries.data_ptr(), *part)
    sizes = (inputs.rows, kind, only, y.data_ptr(), y.shape[-1], inputs.cols, room.padded, 0)
    units = most_tiles(order.count, part[1], prompt.TILE * groups) * -(-y.shape[-1] // prompt.TILE)
    grid, kernel = (prompt.blocks_of(device, groups, units), 1, 1), prompt.kernel_of(fmt, groups)
    shared, threads = prompt.shared_bytes(groups, fmt), prompt.GROUP_THREADS * groups + prompt.MORE_THREADS
    device.launch(kernel, grid, threads, shared, *operands, *experts, *sizes)


def pair_results(device: Device, x: torch.Tensor, order: Sorted, table: ExpertTable, results: torch.Tensor) -> None:
    """What each chosen expert of this device gives goes to results float32 [rows, top_k, hidden]; the rest stays."""
    gate, up, down = table.formats
    floats(device, "experts: results", results, (order.rows, order.top_k, table.hidden))
    experts = len(table.entries)
    inputs = pack(device, prompt.quantise(device, x, {*gate, *up}), order, experts, order.top_k)
    both = device.empty(2, order.count, table.width)
    for kind in (0, 1):
        one_matrix(device, inputs, order, table, kind, both[kind])
    one_matrix(device, pack(device, middle_of(device, both, down), order, experts, 0), order, table, 2, results)


def middle_of(device: Device, both: torch.Tensor, down: Sequence[QuantFormat]) -> prompt.PromptInputs:
    """silu(gate) * up of both [2, pairs, width], quantised for the down products."""
    _, pairs, width = both.shape
    by = prompt.room(device, pairs, width, set(down))
    known = (both[0].data_ptr(), both[1].data_ptr(), *prompt.arguments_of(device, by, width), pairs, width)
    device.launch(Kernel("prompt_inputs", "prompt_middle"), blocks_for(pairs * width // 4), THREADS, 0, *known)
    return prompt.PromptInputs(pairs, width, by)


def experts(
    device: Device, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, table: ExpertTable
) -> torch.Tensor:
    """See Ops.experts; the ids are not checked. ValueError when shapes or types do not fit the table."""
    if not is_coded(table):
        return gpu.experts(device, x, ids, weights, table)
    rows, top_k = ids.shape
    floats(device, "experts: x", x, (rows, table.hidden))
    integers(device, "experts: ids", ids, (rows, top_k))
    floats(device, "experts: weights", weights, (rows, top_k))
    y = device.empty(rows, table.hidden)
    for start in range(0, rows, MOST_ROWS):
        part = slice(start, min(start + MOST_ROWS, rows))
        results = device.empty(part.stop - start, top_k, table.hidden)
        pair_results(device, x[part], sort(device, ids[part], table), table, results)
        gpu.combine(device, results, weights[part], y[part])
    return y
