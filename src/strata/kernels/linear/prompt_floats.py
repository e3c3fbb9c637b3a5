"""Products of weights that are plain floats with the many rows of a prompt (csrc/device/prompt_floats.h)."""

import torch

from strata.kernels.device import Device, Kernel
from strata.kernels.linear.launch import bits
from strata.kernels.linear.prompt_order import LANES
from strata.kernels.views import Weight

THREADS, ROWS, LINES = 128, 128, 64
"""Of a block: threads, rows of x, rows of the weight."""

ARRANGE_THREADS = 256

STEP, DEPTH = 8, 4
SHARED = 4 * DEPTH * STEP * (ROWS + LINES)
"""Dynamic shared bytes of a block: values on their way."""

Arranged = torch.Tensor
"""Rows as prompt_arrange.h lays them out."""


def arrange(device: Device, planes: tuple[int, int], name: str, rows: int, cols: int, tile: int) -> Arranged:
    """Rows of a format's plain floats at the address planes[0] (scales: planes[1]), in tiles of `tile` rows."""
    of_lane = -(-cols // LANES)
    to = device.empty(-(-rows // tile) * tile * LANES * of_lane)
    kernel, grid = Kernel(f"prompt_arrange STRATA_FORMAT={name}", "arrange_rows"), (of_lane, -(-rows // 32), 1)
    device.launch(kernel, grid, ARRANGE_THREADS, 0, *planes, to.data_ptr(), rows, cols, tile)
    return to


def arrange_rows(device: Device, x: torch.Tensor) -> Arranged:
    """x float32 [rows, cols] for `product`."""
    return arrange(device, (x.data_ptr(), 0), "F32", x.shape[0], x.shape[1], ROWS)


def product(device: Device, x: Arranged, weight: Weight, y: torch.Tensor) -> None:
    """y [rows, weight.rows] = x W^T, with x from `arrange_rows`."""
    rows, cols = y.shape[0], weight.cols
    lines = arrange(device, device.weight(weight), weight.format.name, weight.rows, cols, LINES)
    known = (x.data_ptr(), lines.data_ptr(), y.data_ptr())
    grid = (-(-weight.rows // LINES), -(-rows // ROWS), 1)
    kernel, sizes = Kernel("prompt_floats", "prompt_floats"), (rows, weight.rows, cols, bits(weight.scale))
    device.launch(kernel, grid, THREADS, SHARED, *known, *sizes)
