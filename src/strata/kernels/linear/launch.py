"""How the kernels of csrc/device/products.h are started: formats, shared memory, blocks, and the rows they read."""

from dataclasses import dataclass

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.exact import BLOCK, LANES
from strata.kernels.prepared import Layouts
from strata.quant.format import QuantFormat

MOST_ROWS = 8
"""Rows of x that share one reading of a dense matrix; more rows are done in several groups."""

BUCKETS = (1, 2, 4, 8)
"""Rows of x for which there is a kernel; those of experts are for one and two."""

PREPARED_ROWS = 32
"""Rows up to which results are quantised as they are made; a prompt's products read other layouts."""

MOST_GROUPS = 16
"""Groups of lanes of a block; a launch has one block for each processor."""

LINES = 2
"""Rows of a unit of weights, which a group of lanes does from beginning to end, where nothing else is said."""

TASK_SUBS = {"Q6_K": 4}
"""Sub-blocks that a lane unpacks at once; so many rows are a unit then (csrc/device/products_blocks.h)."""

FLOAT_TILE_BYTES = 10 << 10
"""Of plain floats, what a group brings to shared memory at once (csrc/device/products_floats.h)."""

FLOAT_SHARE = 2
"""Of so many processors one works on plain floats with long rows where few rows of x or of weights leave them little to
do: all blocks bring x from the same lines of the second-level cache, which takes longer than the products."""

FLOAT_ROWS = 8
"""With one row of x, rows of weights that a block has then, if that leaves a fourth of the processors at work."""

STAGED_ROWS = 2
"""Rows of quantised x that a block keeps in shared memory (csrc/device/products_step.h); more stay where they are."""

TABLE_WORDS = {
    **dict.fromkeys(("IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4", "NVFP4_PAIRS"), 128),
    **{"IQ3_XXS": 256, "IQ2_XXS": 512, "IQ2_XS": 1024, "IQ2_S": 2048, "IQ1_S": 4096, "IQ1_M": 4096},
}
"""Words of shared memory that formats with tables of values fill (Unpack<F>::table_words)."""

BANK_WORDS = {"IQ3_S": 512}
"""Likewise of tables that are there several times (SharedMemory.banks)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Blocks and threads of a launch, its dynamic shared memory, and rows of a unit in each matrix."""

    blocks: int
    threads: int
    shared: int
    lines: int


def unit(fmt: QuantFormat) -> str:
    """The translation unit of a format's products."""
    return f"products STRATA_FORMAT={fmt.name}"


def table_bytes(device: Device, fmt: QuantFormat) -> int:
    """Shared memory of a format's table of values."""
    return 4 * (TABLE_WORDS.get(fmt.name, 0) + BANK_WORDS.get(fmt.name, 0) * device.shared.banks)


def step_bytes(fmt: QuantFormat) -> int:
    """Bytes of 32 sub-blocks of a weight's row."""
    return LANES * fmt.sub // fmt.block * fmt.block_bytes


def ring_bytes(fmt: QuantFormat, streams: int, subs: int = 1) -> int:
    """Shared memory in which bytes arrive for one group of lanes, which unpack `subs` sub-blocks at once."""
    step = step_bytes(fmt)
    if subs == 1:
        stage = (5 if step <= 640 else 2) * step
        return 2 * (16 + streams * ((stage + 31) // 16 * 16 + 16))
    depth = 3 if streams == 1 else 2
    return depth * (16 + streams * subs * ((2 * step + 30) // 16 * 16 + 16))


def shape(
    device: Device, fmt: QuantFormat, cols: int, rows: int, matrices: int, streams: int = 1, size: int = 0
) -> Shape:
    """A launch over `matrices` of at most `rows` rows each, of which a unit takes some in each of `streams`.

    `size`: the rows of x that all units share, as the kernel takes them; 0 when they read others.
    """
    if fmt.kind == "float":
        return float_shape(device, fmt, cols, rows, matrices, size)
    subs = TASK_SUBS.get(fmt.name, 1)
    if matrices * (rows // subs) < MOST_GROUPS * device.processors:  # smaller units keep more groups at work
        subs = 1
    lines = subs if subs > 1 else LINES
    group = ring_bytes(fmt, streams, subs)
    units = matrices * -(-rows // lines)
    others = table_bytes(device, fmt) + (size * record_bytes(cols, fmt.sub) if size <= STAGED_ROWS else 0)
    most = min(MOST_GROUPS, (device.shared.dynamic - others) // group)
    groups = max(min(4, most), spread(units, device.processors, most))
    shared = others + groups * group
    return Shape(max(1, min(units, device.processors)), groups * LANES, max(device.shared.alone, shared), lines)


def float_shape(
    device: Device, fmt: QuantFormat, cols: int, rows: int, matrices: int, size: int, kept: int = 0
) -> Shape:
    """`shape` for plain floats; `kept`: bytes of shared memory that a block needs beside."""
    row = fmt.row_bytes(cols)
    wanted = 8 * device.processors  # units, so that every processor has some groups at work
    fitting = (n for n in (16, 8, 4) if n * row <= FLOAT_TILE_BYTES and matrices * -(-rows // n) >= wanted)
    lines = next(fitting, 1)
    group = 32 + 2 * ((min(lines * row, FLOAT_TILE_BYTES) + 30) // 16 * 16)
    inputs = kept + 16 + (size * cols * 4 + 32 if size * cols * 4 <= device.shared.input_bytes else 0)
    units = matrices * -(-rows // lines)
    blocks = device.processors
    if lines == 1 and size == 1:
        blocks = min(blocks, max(blocks // 4, -(-units // FLOAT_ROWS)))
    elif lines == 1 and (size == 2 or (size and units <= blocks)):
        blocks //= FLOAT_SHARE
    blocks = max(1, blocks)
    groups = spread(units, blocks, min(MOST_GROUPS, (device.shared.dynamic - inputs) // group))
    shared = max(device.shared.alone, groups * group + inputs)
    return Shape(max(1, min(units, blocks)), groups * LANES, shared, lines)


def spread(units: int, processors: int, most: int) -> int:
    """Workers of a processor, at most so many, among whom the units come out even; ValueError for less than one."""
    if most < 1:
        raise ValueError("a block's shared memory has no room for a single group of lanes")
    each = -(-units // processors)
    rounds = max(1, -(-each // most))
    return max(1, -(-each // rounds))


@dataclass(frozen=True, slots=True)
class Inputs:
    """Rows of x [rows, cols] in the layouts that products read; a layout that nobody needs is None."""

    x: torch.Tensor
    by32: torch.Tensor | None
    by16: torch.Tensor | None

    def address(self, fmt: QuantFormat) -> int:
        """Where the rows lie for weights of this format."""
        if fmt.kind == "float":
            return self.x.data_ptr()
        records = self.by32 if fmt.sub == 32 else self.by16
        assert records is not None
        return records.data_ptr()


def records(device: Device, rows: int, cols: int, sub: int, formats: set[QuantFormat]) -> torch.Tensor | None:
    """Memory for quantised rows (csrc/device/quantised_rows.h) if one of the formats needs them with this `sub`."""
    if not any(fmt.kind == "codes" and fmt.sub == sub for fmt in formats):
        return None
    return record_room(device, rows, cols, sub)


def record_room(device: Device, rows: int, cols: int, sub: int) -> torch.Tensor:
    """Memory for quantised rows with this `sub`."""
    return device.empty(rows, record_bytes(cols, sub), dtype=torch.uint8)


def record_bytes(cols: int, sub: int) -> int:
    """Bytes of a quantised row with this `sub`."""
    return -(-cols // (LANES * sub)) * LANES * (sub + 16)


def beside(device: Device, y: torch.Tensor) -> tuple[int, int]:
    """Addresses at which whoever makes y [rows, cols] also writes its quantised rows (csrc/device/beside.h).

    `quantise` finds them then. Zeros where y is not a few rows of whole blocks.
    """
    if y.ndim != 2 or not 0 < y.shape[0] <= PREPARED_ROWS or y.shape[1] % BLOCK:
        return 0, 0
    rows, cols = y.shape
    layouts = Layouts(record_room(device, rows, cols, 32), record_room(device, rows, cols, 16))
    device.prepared.keep(y, layouts)
    return layouts.by32.data_ptr(), layouts.by16.data_ptr()


def address_of(x: torch.Tensor | None) -> int:
    """Its address, 0 without a tensor."""
    return 0 if x is None else x.data_ptr()


def room(device: Device, x: torch.Tensor, formats: set[QuantFormat]) -> tuple[Inputs, bool]:
    """Where x [rows, cols] is quantised for weights of these formats, and whether it is there already, or not needed.

    ValueError when codes meet no whole blocks of x.
    """
    rows, cols = x.shape
    known = device.prepared.find(x)
    if known is not None:
        return Inputs(x, known.by32, known.by16), True
    inputs = Inputs(x, records(device, rows, cols, 32, formats), records(device, rows, cols, 16, formats))
    if inputs.by32 is None and inputs.by16 is None:
        return inputs, True
    if cols % BLOCK:
        raise ValueError(f"rows of {cols} values cannot be quantised: not a multiple of {BLOCK}")
    return inputs, False


def quantise(device: Device, x: torch.Tensor, formats: set[QuantFormat]) -> Inputs:
    """x [rows, cols] for products with weights of these formats; ValueError when codes meet no whole blocks of x."""
    rows, cols = x.shape
    inputs, there = room(device, x, formats)
    if there:
        return inputs
    grid = blocks_for(rows * cols // 4)
    kernel = Kernel("inputs", "quantise_rows", early=True)
    device.launch(kernel, grid, THREADS, 0, x.data_ptr(), address_of(inputs.by32), address_of(inputs.by16), rows, cols)
    return inputs


def bits(scale: float) -> int:
    """The bits of a float32."""
    return int(torch.tensor(scale, dtype=torch.float32).view(torch.int32).item()) & 0xFFFFFFFF


def bucket(device: Device, fmt: QuantFormat, cols: int, rows: int) -> int:
    """The kernel for so many rows of x; plain floats take fewer at once when no more of them fit into shared memory."""
    size = next(size for size in BUCKETS if size >= min(rows, MOST_ROWS))
    while fmt.kind == "float" and size > 1 and size * cols * 4 > device.shared.input_bytes:
        size //= 2
    return size
