"""How products with several rows of x are started on matrix units, in rounds (csrc/device/products_runs.h)."""

from dataclasses import dataclass

from strata.kernels.device import Device
from strata.kernels.linear.launch import Shape, step_bytes
from strata.quant.format import QuantFormat

FROM_ROWS = {"Q4_K": 5, "Q5_K": 5, "Q6_K": 3}
"""Rows of x from which these kernels are taken, of the formats that have them (Run<F>)."""

LINES = 8
"""Rows of weights of a unit."""

TEAMS = 4
"""Units of a round."""

THREADS = 32 * (4 * TEAMS + 1)

SIZES = (1, 2)
"""Times 8 rows of x that a kernel does at once."""

MOST_SLOTS = 7

STATIC = 4 << 10
"""Bytes of shared memory that are not dynamic, at most."""

OVER_READ = 512
"""Bytes behind the last slot that may be read, though nothing depends on them."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Slots of shared memory for a round's rows, or `steps` steps of them; `fixed`: bytes of what lies before."""

    slots: int
    steps: int
    fixed: int
    slot_bytes: int

    @property
    def shared(self) -> int:
        """Dynamic shared memory of a block."""
        return self.fixed + self.slots * self.slot_bytes + OVER_READ


def fixed_bytes(fmt: QuantFormat, cols: int, size: int) -> int:
    """What a block keeps beside its ring, with `size` times 8 rows of x."""
    scales = 4 * TEAMS * 2 * 8 * 8 * (8 if fmt.minima else 4)
    sums = 2 * TEAMS * 4 * LINES * 8 * size * 4
    record = size * (32 * 2 * fmt.sub // 4 + 128) + 16
    return scales + sums + -(-cols // (8 * fmt.sub)) * 4 * record


def ring(device: Device, fmt: QuantFormat, cols: int, size: int, rounds: int) -> Ring | None:
    """The ring of a block that has so many rounds; None when nothing fits."""
    step, row = step_bytes(fmt), cols // fmt.block * fmt.block_bytes
    steps = -(-cols // (32 * fmt.sub))
    fixed = fixed_bytes(fmt, cols, size)
    best: Ring | None = None
    for pieces in range(1, steps + 1):
        each = -(-steps // pieces)
        slot = LINES * TEAMS * (((min(row, each * step) + 38) // 16) | 1) * 16
        slots = min(
            MOST_SLOTS, rounds * -(-steps // each), (device.shared.dynamic - OVER_READ - STATIC - fixed) // slot
        )
        if slots >= 1:
            best = Ring(slots, each, fixed, slot)
            if slots >= min(2, rounds * -(-steps // each)):
                return best
    return best


def unit(fmt: QuantFormat) -> str:
    """The translation unit of a format's products in rounds."""
    return f"rounds STRATA_FORMAT={fmt.name}"


def has(fmt: QuantFormat) -> bool:
    """Whether the format has these kernels."""
    return fmt.name in FROM_ROWS


def size_for(device: Device, fmt: QuantFormat, cols: int, rows: int) -> int:
    """The kernel for so many rows of x; 0 where there is none."""
    if not has(fmt) or rows < FROM_ROWS[fmt.name]:
        return 0
    fitting = [size for size in SIZES if ring(device, fmt, cols, size, 1 << 20)]
    return next((size for size in fitting if 8 * size >= rows), fitting[-1] if fitting else 0)


def shape(device: Device, fmt: QuantFormat, cols: int, rows: list[int], size: int) -> tuple[Shape, Ring]:
    """A launch over matrices of so many rows each: a block for each processor."""
    units = sum(-(-count // LINES) for count in rows)
    blocks = max(1, min(units, device.processors))
    most = -(-units // blocks)  # of a block
    found = ring(device, fmt, cols, size, -(-most // TEAMS))
    assert found is not None
    return Shape(blocks, THREADS, max(device.shared.alone, found.shared), LINES), found
