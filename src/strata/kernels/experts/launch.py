"""How the kernels of csrc/device/expert_products.h are started: blocks, groups of lanes and shared memory."""

from dataclasses import dataclass

from strata.kernels.device import Device
from strata.kernels.exact import LANES
from strata.kernels.linear.launch import MOST_GROUPS, float_shape, table_bytes
from strata.quant.format import QuantFormat

PARTS = 16
"""Lanes of a row of gate or up (csrc/device/expert_products.h)."""

JOB_BYTES = 80
"""Of a job (csrc/device/expert_table.h)."""

ARRIVAL_BYTES = 16
"""Before the bytes that arrive together (Split in csrc/device/products_split.h)."""

LINE_ROOM = 16
"""Beside the bytes of a matrix that arrive together, so that they may begin anywhere in 64 bytes."""

SCHEDULERS = 4
"""Of a processor: groups are spread evenly over them."""

ROOM_BYTES = 48 << 10
"""For the quantised rows of x of a block's jobs, at most; more blocks than processors keep to it."""


def unit(fmt: QuantFormat) -> str:
    """The translation unit of a format's products with experts."""
    return f"expert_products STRATA_FORMAT={fmt.name}"


def down_parts(fmt: QuantFormat) -> int:
    """Lanes of a row of down: whole blocks in a step (csrc/device/products_split.h)."""
    return max(4, fmt.block // fmt.sub)


def row_bytes(fmt: QuantFormat, cols: int) -> int:
    """Bytes of a row of x, quantised (csrc/device/quantised_rows.h)."""
    return -(-cols // (LANES * fmt.sub)) * LANES * (fmt.sub + 16)


def split_bytes(fmt: QuantFormat, parts: int, streams: int) -> int:
    """Shared memory in which bytes arrive for one group of lanes (Split in csrc/device/products_split.h)."""
    step = parts * fmt.sub // fmt.block * fmt.block_bytes
    piece = ((5 if step <= 300 else 2) * step + 31) // 16 * 16 + 16
    return 2 * (ARRIVAL_BYTES + streams * (LANES // parts * piece + LINE_ROOM))


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """Blocks and threads of a launch, its dynamic shared memory, rows of a unit, jobs that a block meets at most."""

    blocks: int
    threads: int
    shared: int
    lines: int
    met: int


def jobs_met(units: int, blocks: int, per_job: int) -> int:
    """Jobs, of `per_job` units each, that a block of so many meets at most."""
    return (-(-units // blocks) + per_job - 2) // per_job + 1


def shape(
    device: Device, fmt: QuantFormat, parts: int, cols: int, rows: int, matrices: int, size: int, streams: int = 1
) -> ExpertShape:
    """A launch over `matrices` of `rows` rows each, of which a unit takes 32 / `parts` in each of `streams`.

    Shared memory of a block also holds `size` rows of x, of `cols` values, for every job that it meets; more blocks
    than processors keep them few.
    """
    lines, job = LANES // parts, size * row_bytes(fmt, cols)
    per_job = -(-rows // lines)
    units = matrices * per_job
    blocks = min(units, device.processors)
    table, group = table_bytes(device, fmt), split_bytes(fmt, parts, streams)
    room = min(ROOM_BYTES, (device.shared.dynamic - table - SCHEDULERS * group) // 2)
    while job * jobs_met(units, blocks, per_job) > room and blocks < units:
        blocks = min(units, blocks + device.processors)
    met = jobs_met(units, blocks, per_job)
    known, each = table + met * (JOB_BYTES + job), -(-units // blocks)
    groups = min(MOST_GROUPS, -(-each // SCHEDULERS) * SCHEDULERS)
    while groups > 1 and known + groups * group > device.shared.dynamic:
        groups -= SCHEDULERS if groups > SCHEDULERS else 1
    return ExpertShape(blocks, groups * LANES, max(device.shared.alone, known + groups * group), lines, met)


def gate_up_shape(device: Device, fmt: QuantFormat, cols: int, rows: int, pairs: int, size: int) -> ExpertShape:
    """A launch of `gate_up`, for jobs of up to `size` rows of x."""
    return shape(device, fmt, PARTS, cols, rows, pairs, size, streams=2)


def one_shape(device: Device, fmt: QuantFormat, cols: int, rows: int, matrices: int, size: int) -> ExpertShape:
    """A launch of `one_matrix`, for jobs of up to `size` rows of x."""
    if fmt.kind != "float":
        return shape(device, fmt, PARTS, cols, rows, matrices, size)
    plain = float_shape(device, fmt, cols, rows, matrices, 0)
    per_job = -(-rows // plain.lines)
    met = jobs_met(matrices * per_job, plain.blocks, per_job)
    plain = float_shape(device, fmt, cols, rows, matrices, 0, met * JOB_BYTES)
    return ExpertShape(plain.blocks, plain.threads, plain.shared, plain.lines, met)


def down_shape(device: Device, fmt: QuantFormat, cols: int, rows: int, pairs: int, size: int) -> ExpertShape:
    """A launch of `down`, whose blocks quantise the rows of their jobs, of up to `size` rows each."""
    return shape(device, fmt, down_parts(fmt), cols, rows, pairs, size)
