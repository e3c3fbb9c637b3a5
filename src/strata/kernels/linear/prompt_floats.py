"""Products of weights that are plain floats with the many rows of a prompt (csrc/device/prompt_floats.h)."""

from dataclasses import dataclass

import torch

from strata.kernels.device import THREADS as ELEMENT_THREADS
from strata.kernels.device import Device, Kernel, blocks_for
from strata.kernels.linear.launch import bits
from strata.kernels.linear.prompt_order import LANES
from strata.kernels.views import Weight

THREADS, ROWS, LINES = 128, 128, 64
"""Of a block: threads, rows of x, rows of the weight."""

ARRANGE_THREADS, ARRANGE_ROWS = 256, 128
"""Of a block that arranges."""

STEP, DEPTH = 20, 2
"""Values that arrive together at most; stages in shared memory."""

PARTS = 8
"""Blocks that share a tile where there are few tiles."""

RESIDENT_BLOCKS = 2
"""Of a processor: its registers hold no more."""

SHARED = 4 * DEPTH * STEP * (ROWS + LINES) + 4 * 2 * ROWS * LINES
"""Dynamic shared bytes of a block: values on their way, and sums that wait at two levels of the tree."""

WORTH = 0.85
"""Share of the processors' time that whole tiles may leave unused before they are shared out."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """Rows as prompt_arrange.h lays them out, with the values of each lane."""

    data: torch.Tensor
    of_lane: int


def step_of(cols: int) -> int:
    """Values that arrive together: an even number of a lane with little to fill up, or all of two short lanes."""
    of_lane = -(-cols // LANES)
    each = -(-of_lane // -(-of_lane // STEP))
    each += each % 2
    return 2 * each if 2 * each <= STEP and each >= of_lane else each


def filled(cols: int) -> int:
    """Values of a lane once it is filled up."""
    step, of_lane = step_of(cols), -(-cols // LANES)
    return step // 2 if 2 * of_lane <= step else -(-of_lane // step) * step


def arrange(
    device: Device, planes: tuple[int, int], name: str, shape: tuple[int, int], tile: int, beyond: float
) -> Arranged:
    """Rows [rows, cols] of a format's plain floats at address planes[0] (scales: planes[1]) in tiles of `tile` rows.

    Lanes are filled up with `beyond`.
    """
    rows, cols = shape
    of_lane = filled(cols)
    to = device.empty(-(-rows // tile) * tile * LANES * of_lane)
    kernel, blocks = Kernel(f"prompt_arrange STRATA_FORMAT={name}", "arrange_rows"), -(-rows // ARRANGE_ROWS)
    device.launch(
        kernel, (of_lane, blocks, 1), ARRANGE_THREADS, 0, *planes, to.data_ptr(), rows, cols, of_lane, tile, beyond
    )
    return Arranged(to, of_lane)


def arrange_rows(device: Device, x: torch.Tensor) -> Arranged:
    """x float32 [rows, cols] for `product`."""
    return arrange(device, (x.data_ptr(), 0), "F32", (x.shape[0], x.shape[1]), ROWS, 0.0)


def parts_of(device: Device, tiles: int) -> int:
    """Blocks that share a tile: several when whole tiles would leave processors without work."""
    at_once = device.processors * RESIDENT_BLOCKS
    return 1 if tiles >= WORTH * at_once * -(-tiles // at_once) else PARTS


def product(device: Device, x: Arranged, weight: Weight, y: torch.Tensor) -> None:
    """y [rows, weight.rows] = x W^T, with x from `arrange_rows`."""
    rows, cols = y.shape[0], weight.cols
    shape = weight.rows, cols
    lines = arrange(device, device.weight(weight), weight.format.name, shape, LINES, -0.0)
    across, down = -(-weight.rows // LINES), -(-rows // ROWS)
    parts, scale = parts_of(device, across * down), bits(weight.scale)
    to = y if parts == 1 else device.empty(parts, *y.shape)
    known = (x.data.data_ptr(), lines.data.data_ptr(), to.data_ptr())
    sizes = (rows, weight.rows, x.of_lane, step_of(cols), parts, scale if parts == 1 else bits(1.0))
    device.launch(Kernel("prompt_floats", "prompt_floats"), (across, down, parts), THREADS, SHARED, *known, *sizes)
    if parts > 1:
        joined = (to.data_ptr(), y.data_ptr(), y.numel(), scale)
        device.launch(Kernel("prompt_floats", "join_floats"), blocks_for(y.numel()), ELEMENT_THREADS, 0, *joined)
