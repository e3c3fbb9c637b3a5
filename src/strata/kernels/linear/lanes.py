"""How products of a few rows with long rows of plain floats are started (csrc/device/float_lanes.h)."""

from collections.abc import Sequence

import torch

from strata.kernels.device import Device
from strata.kernels.exact import LANES
from strata.kernels.linear.launch import Shape
from strata.kernels.views import Weight
from strata.quant.format import QuantFormat

FORMATS = ("F32", "F16", "BF16")
"""That have such kernels."""

THREADS = 640

SIZES = (1, 2, 4)
"""Rows of x that a block does at once; it does all of them, one after the other."""

STATIC = 512
"""Bytes of shared memory that the kernel declares itself."""

FROM_COLS = 2048
"""Of rows whose chains of additions take longer than what surrounds them; shorter rows are brought several at once."""

MOST_ROWS = 5
"""Of weights of a block: its groups of lanes share what shared memory gives."""


def unit(fmt: QuantFormat) -> str:
    """The translation unit of a format's kernels."""
    return f"float_lanes STRATA_FORMAT={fmt.name}"


def values_of_16_bytes(fmt: QuantFormat) -> int:
    """Of a row of weights."""
    return 16 * LANES // fmt.row_bytes(LANES)


def lane_bytes(steps: int, each: int) -> int:
    """Shared memory of a row whose lanes have `steps` values, `each` in 16 bytes (LaneLayout in device/lanes.h)."""
    units = steps // each
    step, pad = (units | 1, 2) if each == 8 else ((units + 5) // 8 * 8 + 2, 1)
    return (LANES * step + LANES // each * pad) * 16


def shared_bytes(fmt: QuantFormat, cols: int, each: int, size: int) -> int:
    """Dynamic shared memory of a block with `each` rows of weights, and `size` of x."""
    steps = cols // LANES
    return size * lane_bytes(steps, 4) + each * lane_bytes(steps, values_of_16_bytes(fmt))


def size_for(device: Device, fmt: QuantFormat, cols: int, each: int, rows: int) -> int:
    """The kernel for so many rows of x where a block has `each` of weights; 0 where shared memory holds no two of x.

    All blocks bring all of x from the second-level cache, which is most of what several rows take: the fewer rounds
    the better.
    """
    wanted = next(size for size in SIZES if size >= min(rows, SIZES[-1]))
    room = device.shared.most - STATIC
    fitting = [size for size in SIZES if size <= wanted and shared_bytes(fmt, cols, each, size) <= room]
    return fitting[-1] if fitting and fitting[-1] >= min(wanted, 2) else 0


def rows_of(device: Device, lines: int) -> int:
    """Rows of weights of a block, of `lines` in all."""
    return -(-lines // device.processors)


def takes(device: Device, x: torch.Tensor, weights: Sequence[Weight]) -> bool:
    """Whether there is such a kernel for x [rows, cols] and matrices of one format."""
    (rows, cols), fmt = x.shape, weights[0].format
    if fmt.name not in FORMATS or cols < FROM_COLS or cols % (LANES * values_of_16_bytes(fmt)):
        return False
    each = rows_of(device, sum(weight.rows for weight in weights))
    fits = each <= MOST_ROWS and size_for(device, fmt, cols, each, rows) > 0
    return fits and not any(at % 16 for at in (x.data_ptr(), *(device.weight(weight)[0] for weight in weights)))


def shape(device: Device, fmt: QuantFormat, cols: int, lines: int, rows: int) -> tuple[Shape, int]:
    """(A launch over `lines` rows of weights, rows of x of its kernel): as few blocks as have no more of them than all
    processors would.

    Memory as needed: others may begin beside them, as what follows does with its weights.
    """
    each = rows_of(device, lines)
    size = size_for(device, fmt, cols, each, rows)
    return Shape(-(-lines // each), THREADS, shared_bytes(fmt, cols, each, size), 1), size
