"""experts on a device (csrc/device/products.h, experts.h).

Up to four launches for up to 32 rows: quantise x, group the pairs (row, rank) by expert, gate and up with silu and the
quantisation of the middle, down, and the weighted sum. More rows are done 32 at a time.
"""

from dataclasses import dataclass

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats, integers
from strata.kernels.experts.table import ExpertTable
from strata.kernels.linear import launch
from strata.kernels.native import FORMAT_CODES
from strata.quant.format import QuantFormat

WINDOW = 32
"""Rows that are grouped together."""

JOB_WORDS = 4
"""int32 words of a job, of up to two pairs; there is room for as many jobs as pairs, and for four words before them."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """The pairs of some rows by expert: `jobs` as csrc/device/expert_table.h."""

    jobs: torch.Tensor
    rows: int
    top_k: int

    @property
    def pairs(self) -> int:
        """Pairs of a row and a rank."""
        return self.rows * self.top_k

    @property
    def size(self) -> int:
        """The kernels' number of rows of one expert; an expert of more rows is several jobs."""
        return min(self.rows, 2)


def experts(
    device: Device, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, table: ExpertTable
) -> torch.Tensor:
    """See Ops.experts; the ids are not checked. ValueError when shapes or types do not fit the table."""
    rows, top_k = ids.shape
    floats(device, "experts: x", x, (rows, table.hidden))
    integers(device, "experts: ids", ids, (rows, top_k))
    floats(device, "experts: weights", weights, (rows, top_k))
    y = device.empty(rows, table.hidden)
    for start in range(0, rows, WINDOW):
        part = slice(start, min(start + WINDOW, rows))
        results = device.empty(part.stop - start, top_k, table.hidden)
        some = x if rows <= WINDOW else x[part]  # as it is: what was quantised beside it is found by its identity
        pair_results(device, some, group(device, ids[part], table), table, results)
        combine(device, results, weights[part], y[part])
    return y


def ungrouped(device: Device, rows: int, top_k: int) -> Grouped:
    """Room for the jobs of so many pairs."""
    return Grouped(device.empty(4 + JOB_WORDS * rows * top_k, dtype=torch.int32), rows, top_k)


def group(device: Device, ids: torch.Tensor, table: ExpertTable) -> Grouped:
    """The pairs of ids int32 [rows, top_k], rows at most WINDOW, by the experts that this device computes."""
    grouped = ungrouped(device, *ids.shape)
    kernel = Kernel("experts", "group_pairs", early=True)
    known = (ids.data_ptr(), grouped.pairs, table.entries.data_ptr(), grouped.jobs.data_ptr())
    device.launch(kernel, (1, 1, 1), THREADS, 8 * grouped.pairs, *known)
    return grouped


def pair_results(device: Device, x: torch.Tensor, grouped: Grouped, table: ExpertTable, results: torch.Tensor) -> None:
    """What each chosen expert of this device gives goes to results float32 [rows, top_k, hidden]; the rest stays."""
    gate, up, down = table.formats
    floats(device, "experts: results", results, (grouped.rows, grouped.top_k, table.hidden))
    inputs = launch.quantise(device, x, {*gate, *up})
    middle = middle_of(device, inputs, grouped, table)
    for fmt in down:
        one_matrix(device, middle, grouped, table, 2, fmt, results, 0)


def middle_of(device: Device, inputs: launch.Inputs, grouped: Grouped, table: ExpertTable) -> launch.Inputs:
    """silu(gate x) * up x of every pair, as the down products read it."""
    gate, up, down = table.formats
    pairs, width = grouped.pairs, table.width
    h = device.empty(pairs, width)
    fmt = table.fused
    if fmt is not None and fmt.kind == "codes":
        kernel = Kernel(launch.unit(fmt), f"gate_up_{grouped.size}", early=True)
        shape = launch.shape(device, fmt, table.hidden, width, pairs, streams=2)
        known = (table.entries.data_ptr(), grouped.jobs.data_ptr(), inputs.address(fmt), grouped.top_k, table.hidden)
        out = (shape.lines, h.data_ptr(), width)
        device.launch(kernel, (shape.blocks, 1, 1), shape.threads, shape.shared, *known, *out)
        return launch.quantise(device, h, set(down))
    both = device.empty(2, pairs, width)
    for kind, formats in enumerate((gate, up)):
        for one in formats:
            one_matrix(device, inputs, grouped, table, kind, one, both[kind], grouped.top_k)
    layouts = [launch.records(device, pairs, width, sub, set(down)) for sub in (32, 16)]
    places = (h.data_ptr(), *map(launch.address_of, layouts))
    grid, sides = blocks_for(-(-pairs * width // 32) * 8), (both[0].data_ptr(), both[1].data_ptr())
    device.launch(Kernel("inputs", "gate_rows", early=True), grid, THREADS, 0, *sides, *places, pairs, width)
    return launch.Inputs(h, *layouts)


def one_matrix(
    device: Device,
    inputs: launch.Inputs,
    grouped: Grouped,
    table: ExpertTable,
    kind: int,
    fmt: QuantFormat,
    y: torch.Tensor,
    top_k: int,
) -> None:
    """y [pairs, rows] of gate, up or down (kind 0, 1, 2) of the experts that have it in this format.

    `inputs` has a row for each pair, or with `top_k` one for each `top_k` pairs.
    """
    rows = table.hidden if kind == 2 else table.width
    cols = table.width if kind == 2 else table.hidden
    shape = launch.shape(device, fmt, cols, rows, grouped.pairs)
    name = "packed" if launch.is_packed(fmt, cols) else "one_matrix"
    kernel = Kernel(launch.unit(fmt), f"{name}_{grouped.size}", early=True)
    known = (table.entries.data_ptr(), grouped.jobs.data_ptr(), inputs.address(fmt), top_k, cols)
    out = (shape.lines, y.data_ptr(), rows, kind, FORMAT_CODES[fmt.name])
    device.launch(kernel, (shape.blocks, 1, 1), shape.threads, shape.shared, *known, *out)


def combine(device: Device, results: torch.Tensor, weights: torch.Tensor, y: torch.Tensor) -> None:
    """y [rows, hidden] = sum over ranks in order of weights [rows, top_k] * results [rows, top_k, hidden], by fma."""
    rows, top_k, hidden = results.shape
    floats(device, "combine: results", results, (rows, top_k, hidden))
    floats(device, "combine: weights", weights, (rows, top_k))
    floats(device, "combine: y", y, (rows, hidden))
    places = (results.data_ptr(), weights.data_ptr(), y.data_ptr())
    kernel = Kernel("experts", "combine", early=True)
    device.launch(kernel, blocks_for(rows * hidden), THREADS, 0, *places, rows, top_k, hidden)
