"""experts on a device (csrc/device/expert_products.h, experts.h).

Four launches for up to 32 rows where gates and ups have one format: the pairs (row, rank) are grouped by expert while
x is quantised, gate and up with silu, down, which quantises what it reads, and the weighted sum. More rows are done 32
at a time.
"""

from dataclasses import dataclass

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats, integers
from strata.kernels.experts import launch as expert_launch
from strata.kernels.experts.table import ExpertTable
from strata.kernels.linear import launch
from strata.kernels.native import FORMAT_CODES
from strata.quant.format import QuantFormat

WINDOW = 32
"""Rows that are grouped together."""

JOB_WORDS = 20
"""int32 words of a job, of up to two pairs; there is room for as many jobs as pairs, and for four words before them."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """The pairs of some rows by expert: `jobs` as csrc/device/expert_table.h."""

    jobs: torch.Tensor
    rows: int
    top_k: int
    inputs: launch.Inputs
    """The rows, quantised by who grouped them."""

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
        pair_results(device, group(device, some, ids[part], table), table, results)
        combine(device, results, weights[part], y[part])
    return y


def ungrouped(device: Device, x: torch.Tensor, top_k: int, table: ExpertTable) -> tuple[Grouped, int]:
    """Room for the jobs of x [rows, hidden] and for its quantised form, and how many blocks make the latter."""
    rows, (gate, up, _) = len(x), table.formats
    inputs, there = launch.room(device, x, {*gate, *up})
    jobs = device.empty(4 + JOB_WORDS * rows * top_k, dtype=torch.int32)
    return Grouped(jobs, rows, top_k, inputs), 0 if there else blocks_for(x.numel() // 4)[0]


def group(device: Device, x: torch.Tensor, ids: torch.Tensor, table: ExpertTable) -> Grouped:
    """The pairs of ids int32 [rows, top_k], rows at most WINDOW, by the experts that this device computes."""
    grouped, more = ungrouped(device, x, ids.shape[1], table)
    kernel = Kernel("experts", "group_pairs", early=True)
    known = (ids.data_ptr(), grouped.pairs, table.entries.data_ptr(), grouped.jobs.data_ptr())
    places = (x.data_ptr(), *map(launch.address_of, (grouped.inputs.by32, grouped.inputs.by16)))
    device.launch(kernel, (1 + more, 1, 1), THREADS, 8 * grouped.pairs, *known, *places, *x.shape)
    return grouped


def pair_results(device: Device, grouped: Grouped, table: ExpertTable, results: torch.Tensor) -> None:
    """What each chosen expert of this device gives goes to results float32 [rows, top_k, hidden]; the rest stays."""
    floats(device, "experts: results", results, (grouped.rows, grouped.top_k, table.hidden))
    h = middle_of(device, grouped, table)
    for fmt in table.formats[2]:
        if fmt.kind == "codes":
            down_codes(device, h, grouped, table, fmt, results)
        else:
            one_matrix(device, launch.Inputs(h, None, None), grouped, table, 2, fmt, results, 0)


def middle_of(device: Device, grouped: Grouped, table: ExpertTable) -> torch.Tensor:
    """silu(gate x) * up x of every pair, float32 [pairs, width]."""
    gate, up, _ = table.formats
    inputs, pairs, width = grouped.inputs, grouped.pairs, table.width
    h = device.empty(pairs, width)
    fmt = table.fused
    if fmt is not None and fmt.kind == "codes":
        kernel = Kernel(expert_launch.unit(fmt), f"gate_up_{grouped.size}", early=True)
        shape = expert_launch.gate_up_shape(device, fmt, table.hidden, width, pairs, grouped.size)
        known = (grouped.jobs.data_ptr(), grouped.pairs, inputs.address(fmt), grouped.top_k, table.hidden)
        out = (shape.lines, shape.met, h.data_ptr(), width)
        device.launch(kernel, (shape.blocks, 1, 1), shape.threads, shape.shared, *known, *out)
        return h
    both = device.empty(2, pairs, width)
    for kind, formats in enumerate((gate, up)):
        for one in formats:
            one_matrix(device, inputs, grouped, table, kind, one, both[kind], grouped.top_k)
    places = (both[0].data_ptr(), both[1].data_ptr(), h.data_ptr())
    grid = blocks_for(pairs * width)
    device.launch(Kernel("inputs", "gate_rows", early=True), grid, THREADS, 0, *places, pairs * width)
    return h


def down_codes(
    device: Device, h: torch.Tensor, grouped: Grouped, table: ExpertTable, fmt: QuantFormat, y: torch.Tensor
) -> None:
    """y [pairs, hidden] of the down matrices of the experts that have them in this format, from h [pairs, width]."""
    shape = expert_launch.down_shape(device, fmt, table.width, table.hidden, grouped.pairs, grouped.size)
    kernel = Kernel(expert_launch.unit(fmt), f"down_{grouped.size}", early=True)
    known = (grouped.jobs.data_ptr(), grouped.pairs, h.data_ptr(), table.width)
    out = (shape.lines, shape.met, y.data_ptr(), table.hidden, FORMAT_CODES[fmt.name])
    device.launch(kernel, (shape.blocks, 1, 1), shape.threads, shape.shared, *known, *out)


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
    shape = expert_launch.one_shape(device, fmt, cols, rows, grouped.pairs, grouped.size)
    kernel = Kernel(expert_launch.unit(fmt), f"one_matrix_{grouped.size}", early=True)
    known = (grouped.jobs.data_ptr(), grouped.pairs, inputs.address(fmt), top_k, cols)
    out = (shape.lines, shape.met, y.data_ptr(), rows, kind, FORMAT_CODES[fmt.name])
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
