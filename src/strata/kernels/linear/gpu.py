"""linear on a device (csrc/device/products.h)."""

from collections.abc import Sequence

import torch

from strata.kernels.device import Device, Kernel
from strata.kernels.device_addresses import floats
from strata.kernels.linear import lanes, launch, pair, rounds, share, tiles
from strata.kernels.linear.matrices import MOST_MATRICES, matrices
from strata.kernels.views import Weight
from strata.quant.format import QuantFormat


def linear(device: Device, x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
    """See Ops.linear: x is quantised once, then one launch for each format among the weights, or for two (pair.py).

    ValueError when x is not float32 [T, cols of every weight] or a weight's planes do not fit.
    """
    rows, cols = x.shape
    floats(device, "linear: x", x, (rows, cols))
    for weight in weights:
        if weight.cols != cols:
            raise ValueError(f"rows of {cols} values for a weight of {weight.cols} columns")
    by_format = {weight.format: [w for w in weights if w.format == weight.format] for weight in weights}
    inputs = launch.quantise(device, x, set(by_format))
    together = pair.find(device, x, by_format)
    found = {} if together is None else pair.products(device, inputs, together, by_format)
    for fmt in [fmt for fmt in by_format if fmt not in found]:
        found[fmt] = of_format(device, inputs, fmt, by_format[fmt])
    left = {fmt: iter(results) for fmt, results in found.items()}
    return tuple(next(left[weight.format]) for weight in weights)


def of_format(
    device: Device, inputs: launch.Inputs, fmt: QuantFormat, weights: Sequence[Weight]
) -> Sequence[torch.Tensor]:
    """The products with weights of one format; the results lie one after the other in one tensor."""
    if len(weights) > MOST_MATRICES:
        parts = (weights[:MOST_MATRICES], weights[MOST_MATRICES:])
        return [y for part in parts for y in of_format(device, inputs, fmt, part)]
    rows, cols = inputs.x.shape
    lines = [weight.rows for weight in weights]
    more: tuple[int, ...]
    if lanes.takes(device, inputs.x, weights):
        shape, together = lanes.shape(device, fmt, cols, sum(lines), rows)
        kernel, size, more = Kernel(lanes.unit(fmt), f"float_lanes_{together}", early=True), rows, ()
    elif eights := rounds.size_for(device, fmt, cols, rows):
        shape, ring = rounds.shape(device, fmt, cols, lines, eights)
        kernel, size = Kernel(rounds.unit(fmt), f"rounds_{eights}", early=True), 8 * eights
        more = (ring.slots, ring.steps)
    elif eights := tiles.size_for(device, fmt, cols, rows):
        shape = tiles.shape(device, fmt, cols, lines, eights)
        kernel, size = Kernel(launch.unit(fmt), f"tiles_{eights}", early=True), 8 * eights
        more = (shape.lines,)
    else:
        size = launch.bucket(device, fmt, cols, min(rows, 4) if tiles.has(fmt) or rounds.has(fmt) else rows)
        at_once = share.shape(device, fmt, cols, sum(lines), size)
        shape, slots = at_once or (launch.shape(device, fmt, cols, sum(lines), 1, size=size), 0)
        kernel, more = Kernel(launch.unit(fmt), f"linear_{size}", early=True), (shape.lines, slots)
    given = matrices(device, weights, shape.lines, rows)
    if rows:
        known = (*given.known, inputs.address(fmt), given.y.data_ptr(), rows, cols, *more)
        device.launch(kernel, (shape.blocks, -(-rows // size), 1), shape.threads, shape.shared, *known)
    return given.results
