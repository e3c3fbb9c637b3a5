"""How products with several rows of x are started on matrix units (csrc/device/products_tiles.h)."""

from strata.kernels.device import Device
from strata.kernels.linear.launch import Shape, step_bytes
from strata.quant.format import QuantFormat

TABLE_WORDS = {"Q8_0": 0, "Q4_0": 0, "IQ4_NL": 0, "IQ3_S": 512 * 8}
"""Of the formats that have such kernels (Fragment<F>), words of shared memory that their tables fill."""

LINES = 16
"""Rows of weights of a unit."""

THREADS = 256

FROM_ROWS = 5
"""Rows of x from which these kernels are taken."""

SIZES = (1, 2)
"""Times 8 rows of x that a kernel does at once."""


def shared_bytes(fmt: QuantFormat, cols: int, size: int) -> int:
    """Dynamic shared memory that a block with `size` times 8 rows of x fills."""
    step = step_bytes(fmt)
    stage = LINES * (((step + 34) // 16) | 1) * 16
    sums = 8 * LINES * 8 * size * 4
    inputs = cols // fmt.sub * size * (8 * fmt.sub + 64)
    return 4 * TABLE_WORDS[fmt.name] + (3 if step > 640 else 4) * stage + 2 * sums + inputs


def has(fmt: QuantFormat) -> bool:
    """Whether the format has these kernels; others do fewer than FROM_ROWS rows at once then."""
    return fmt.name in TABLE_WORDS


def size_for(device: Device, fmt: QuantFormat, cols: int, rows: int) -> int:
    """The kernel for so many rows of x; 0 where there is none."""
    if rows < FROM_ROWS or not has(fmt):
        return 0
    fitting = [size for size in SIZES if shared_bytes(fmt, cols, size) <= device.shared.dynamic]
    return next((size for size in fitting if 8 * size >= rows), fitting[-1] if fitting else 0)


def shape(device: Device, fmt: QuantFormat, cols: int, rows: list[int], size: int) -> Shape:
    """A launch over matrices of so many rows each; as many blocks as places, and never more on a processor."""
    shared, units = shared_bytes(fmt, cols, size), sum(-(-count // LINES) for count in rows)
    pair = shared <= device.shared.most // 2 - 512  # two share a processor, and not three
    shared = max(shared, device.shared.most // 3 + 1366 if pair else device.shared.alone)
    return Shape(max(1, min(units, device.processors * (2 if pair else 1))), THREADS, shared, LINES)
