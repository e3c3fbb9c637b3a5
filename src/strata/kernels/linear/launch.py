"""How the kernels of csrc/device/products.h are started: formats, shared memory, blocks, and the rows they read."""

from dataclasses import dataclass

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.exact import BLOCK, LANES
from strata.quant.format import QuantFormat

LINES = 2
"""Rows of weights that a group of lanes does at once."""

MOST_ROWS = 8
"""Rows of x that share one reading of the weights; more rows are done in several groups."""

BLOCKS_PER_PROCESSOR = 2
"""What stays resident: a launch has no more blocks, since each takes units in turn."""

GRID_WORDS = {"IQ3_S": 512, "IQ3_XXS": 256, "IQ2_XXS": 512, "IQ2_XS": 1024, "IQ2_S": 2048, "IQ1_S": 4096, "IQ1_M": 4096}
"""Words of shared memory that the formats with code grids fill."""

RING_BYTES = 7168
"""Bytes on their way to each group of lanes, about (products_run.h)."""


def unit(fmt: QuantFormat) -> str:
    """The translation unit of a format's products."""
    return f"products STRATA_FORMAT={fmt.name}"


def step_bytes(fmt: QuantFormat) -> int:
    """Bytes of a weight's row that a group of lanes takes at once."""
    if fmt.kind == "float":
        return LANES * (8 if fmt.block_bytes == 4 else 16) * fmt.block_bytes
    return LANES * fmt.sub // fmt.block * fmt.block_bytes


def ring_bytes(fmt: QuantFormat, lines: int) -> int:
    """Shared memory in which bytes arrive for one group of lanes (products_run.h says the same)."""
    stage = lines * ((step_bytes(fmt) + 31) // 16 * 16 + 16)
    return stage * min(8, max(2, RING_BYTES // stage))


def shared_bytes(fmt: QuantFormat) -> int:
    """Dynamic shared memory of a block: the format's grid and a ring for each group."""
    return 4 * GRID_WORDS.get(fmt.name, 0) + THREADS // LANES * ring_bytes(fmt, LINES)


def packed_rows(size: int) -> int:
    """Rows of weights that a group does at once in the packed form, for so many rows of x (products_packed.h)."""
    return 8 if size <= 2 else 4


def packed_bytes(fmt: QuantFormat, size: int) -> int:
    """`shared_bytes` of the packed form: with the terms of each group."""
    rows = packed_rows(size)
    terms = size * rows * (LANES + LANES // rows) * 4
    return 4 * GRID_WORDS.get(fmt.name, 0) + THREADS // LANES * (ring_bytes(fmt, 1) + terms)


def is_packed(fmt: QuantFormat, cols: int) -> bool:
    """Whether rows are so short that several are packed into the lanes of a step."""
    return fmt.kind == "codes" and cols // fmt.sub < LANES


def blocks(device: Device, units: int) -> int:
    """Blocks for so many units, a group of lanes each at a time."""
    return max(1, min(-(-units // (THREADS // LANES)), BLOCKS_PER_PROCESSOR * device.processors))


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
    return device.empty(rows, -(-cols // (LANES * sub)), LANES * sub + 8 * LANES, dtype=torch.uint8)


def address_of(x: torch.Tensor | None) -> int:
    """Its address, 0 without a tensor."""
    return 0 if x is None else x.data_ptr()


def quantise(device: Device, x: torch.Tensor, formats: set[QuantFormat]) -> Inputs:
    """x [rows, cols] for products with weights of these formats; ValueError when codes meet no whole blocks of x."""
    rows, cols = x.shape
    inputs = Inputs(x, records(device, rows, cols, 32, formats), records(device, rows, cols, 16, formats))
    if inputs.by32 is None and inputs.by16 is None:
        return inputs
    if cols % BLOCK:
        raise ValueError(f"rows of {cols} values cannot be quantised: not a multiple of {BLOCK}")
    grid = blocks_for(rows * cols)
    kernel = Kernel("inputs", "quantise_rows")
    device.launch(kernel, grid, THREADS, 0, x.data_ptr(), address_of(inputs.by32), address_of(inputs.by16), rows, cols)
    return inputs


def bits(scale: float) -> int:
    """The bits of a float32."""
    return int(torch.tensor(scale, dtype=torch.float32).view(torch.int32).item()) & 0xFFFFFFFF


def bucket(rows: int, buckets: tuple[int, ...]) -> int:
    """The kernel for so many rows."""
    return next(size for size in buckets if size >= min(rows, MOST_ROWS))
