"""How products of one or two rows of x are started whose units of weights arrive whole (device/products_share.h)."""

from strata.kernels.device import Device
from strata.kernels.exact import LANES
from strata.kernels.linear.launch import MOST_GROUPS, STAGED_ROWS, Shape, record_bytes
from strata.quant.format import QuantFormat

LINES = {"Q6_K": 4, "Q5_K": 2, "Q4_K": 2}
"""Of the formats that have such kernels, rows of weights of a unit: the sub-blocks that a lane unpacks at once."""

AT_ONCE = 2
"""Units that a group of lanes computes at once where it has more than one slot: they share what is read of x."""

LEAST_GROUPS = 8
"""Groups of lanes of a block that has more units than groups, at least; longer rows take other kernels."""

ASKED_BYTES = 170 << 10
"""Of weights that a block asks for before x is there, at most: x comes behind them."""

STATIC = 3 << 10
"""Bytes of shared memory that are not dynamic, at most."""

MOST_PLACES = 72
"""Slots of all groups of a block, at most."""


def room(fmt: QuantFormat, cols: int) -> int:
    """Shared memory of a slot: a unit that begins anywhere in 16 bytes, and reads past its end."""
    return (LINES[fmt.name] * fmt.row_bytes(cols) + 31) // 16 * 16 + 16


def shape(
    device: Device, fmt: QuantFormat, cols: int, rows: int, size: int, others: int = 0
) -> tuple[Shape, int] | None:
    """A launch over `rows` rows of weights with `size` rows of x, and a group's slots; None where there is none.

    `others`: processors that do something else.
    """
    if size > STAGED_ROWS or fmt.name not in LINES:
        return None
    slot, inputs = room(fmt, cols), size * record_bytes(cols, fmt.sub)
    units = -(-rows // LINES[fmt.name])
    processors = device.processors - others
    each = -(-units // processors)
    places = min(MOST_PLACES, ASKED_BYTES // slot, (device.shared.dynamic - STATIC - inputs) // slot)
    if each <= min(MOST_GROUPS, places):
        groups, slots = max(1, each), 1
    else:
        slots = AT_ONCE if places >= AT_ONCE * LEAST_GROUPS else 1
        groups = min(MOST_GROUPS, places // slots)
        if groups < LEAST_GROUPS:
            return None
    shared = max(device.shared.alone, inputs + groups * slots * slot)
    return Shape(max(1, min(units, processors)), groups * LANES, shared, LINES[fmt.name]), slots
