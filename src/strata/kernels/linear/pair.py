"""Codes and plain floats that read the same rows of x, in one launch (csrc/device/products_pair.h).

In a step of Flash-Next: a delta net's rates beside its other inputs, the router beside the shared expert, an indexer
beside attention. Each product keeps the loop that it has by itself (share.py, lanes.py); here is which blocks do which.
What does not have these loops, or finds no room for both, stays two launches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from strata.kernels.device import Device, Kernel
from strata.kernels.exact import LANES
from strata.kernels.linear import lanes, share
from strata.kernels.linear.launch import MOST_GROUPS, Inputs
from strata.kernels.linear.matrices import MOST_MATRICES, matrices
from strata.kernels.views import Weight
from strata.quant.format import QuantFormat

MOST_ROWS = 2
"""Of x: with more of them codes take other kernels."""

THREADS = MOST_GROUPS * LANES

FLOAT_TIME = 1.9
"""Time of a byte of plain floats, in bytes of codes. With it 132 processors are divided as was measured best on an H200
(columns 2560, us more of a step than with two launches):

    Q6_K 16384 rows with BF16  96   3 blocks of floats -78, 4 -60
    Q6_K  1280 rows with  F32 513  36 +63, 44 -21, 54 -18, 66 -88
    Q6_K 13312 rows with BF16 640  18 +49, 24 +11, by themselves; the three together gave more than their sum

The codes' kernel was the one before share.py's, so these may move.
"""

MOST_SHARE = 2
"""One of so many processors does plain floats, at most: more were not tried."""

SPARED = 16
"""One of so many processors may do plain floats beyond their share of the time, where less do not hold their rows."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A launch for two formats, and how its blocks are divided."""

    codes: QuantFormat
    floats: QuantFormat
    size: int
    """Rows of x, as the kernel takes them."""
    float_blocks: int
    code_blocks: int
    groups: int
    """Of lanes, of a block of codes; those of floats use all that there are."""
    slots: int
    shared: int

    @property
    def kernel(self) -> Kernel:
        """Its kernel."""
        unit = f"products_pair STRATA_FORMAT={self.codes.name} STRATA_FLOATS={self.floats.name}"
        return Kernel(unit, f"pair_{self.size}", early=True)


def find(device: Device, x: torch.Tensor, weights: Mapping[QuantFormat, Sequence[Weight]]) -> Pair | None:
    """The first two formats whose products with x [rows, cols] one launch does; None where there are none."""
    codes = [fmt for fmt in weights if fmt.name in share.LINES]
    floats = [fmt for fmt in weights if fmt.name in lanes.FORMATS]
    pairs = (pair(device, x, weights[one], weights[other]) for one in codes for other in floats)
    return next((found for found in pairs if found), None)


def pair(device: Device, x: torch.Tensor, codes: Sequence[Weight], floats: Sequence[Weight]) -> Pair | None:
    """How one launch does both; None where their kernels are others, or do not fit together."""
    rows, cols = x.shape
    if not 0 < rows <= MOST_ROWS or max(len(codes), len(floats)) > MOST_MATRICES or not lanes.takes(device, x, floats):
        return None
    size, lines = rows, sum(weight.rows for weight in floats)
    blocks = float_blocks(device, size, codes, floats)
    if not 0 < blocks < device.processors:
        return None
    code, plain = codes[0].format, floats[0].format
    found = share.shape(device, code, cols, sum(weight.rows for weight in codes), size, others=blocks)
    if found is None:
        return None
    shape, slots = found
    shared = max(shape.shared, lanes.shared_bytes(plain, cols, -(-lines // blocks), size))
    return Pair(code, plain, size, blocks, shape.blocks, shape.threads // LANES, slots, shared)


def float_blocks(device: Device, size: int, codes: Sequence[Weight], floats: Sequence[Weight]) -> int:
    """Blocks for plain floats, by their share of the time; 0 where so many do not hold their rows of weights."""
    fmt, cols, lines = floats[0].format, floats[0].cols, sum(weight.rows for weight in floats)
    time = FLOAT_TIME * lines * fmt.row_bytes(cols)
    others = sum(weight.rows * weight.format.row_bytes(cols) for weight in codes)
    fair = int(device.processors * time / (time + others))
    fair = max(1, min(fair, lines, device.processors // MOST_SHARE))
    room = device.shared.dynamic - share.STATIC - lanes.shared_bytes(fmt, cols, 0, size)
    held = room // lanes.shared_bytes(fmt, cols, 1, 0)
    needed = -(-lines // held) if held > 0 else lines + fair
    return max(fair, needed) if needed <= fair + device.processors // SPARED else 0


def products(
    device: Device, inputs: Inputs, launch: Pair, weights: Mapping[QuantFormat, Sequence[Weight]]
) -> dict[QuantFormat, Sequence[torch.Tensor]]:
    """Of the pair's formats, what two launches would give, bit for bit."""
    rows, cols = inputs.x.shape
    codes = matrices(device, weights[launch.codes], share.LINES[launch.codes.name], rows)
    floats = matrices(device, weights[launch.floats], 1, rows)
    of_codes = (*codes.known, inputs.address(launch.codes), codes.y.data_ptr(), launch.groups, launch.slots)
    of_floats = (*floats.known, inputs.address(launch.floats), floats.y.data_ptr(), launch.float_blocks)
    grid = (launch.float_blocks + launch.code_blocks, 1, 1)
    device.launch(launch.kernel, grid, THREADS, launch.shared, *of_codes, *of_floats, rows, cols)
    return {launch.codes: codes.results, launch.floats: floats.results}
