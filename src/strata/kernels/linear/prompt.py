"""linear for the many rows of a prompt (csrc/device/prompt_*.h): matrix units, and the bits of linear/naive.py.

A weight's codes are unpacked into a panel of signed bytes once for a call; the products of bytes are exact on matrix
units, and their float terms are added in the lane rule's order. So a prompt gives what its rows give in windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats
from strata.kernels.linear import launch, prompt_floats
from strata.kernels.linear.prompt_order import places
from strata.kernels.views import Weight
from strata.quant.format import QuantFormat

STAGE = 128
"""Codes of a row that arrive together; rows are filled up to a multiple."""

TILE = 64
"""Rows of x, and rows of the weight, that 128 threads multiply; also of a record."""

GROUPS = (3, 1)
"""How often 128 threads a block may have; each adds 64 rows of x to a tile. Three fill a processor's registers."""

BLOCKS = {1: 2, 3: 1}
"""Blocks that a processor holds at once, by groups."""

GROUP_THREADS, RESULTS, MORE_THREADS = 128, 32, 128
"""Threads of a group; results of a thread; threads of a block that bring operands."""

ARRIVALS = 1024
"""Bytes before the stages (prompt_loader.h)."""

DEEP_LEVELS = 2
"""Levels of the tree whose sums wait in shared memory (prompt_sums.h)."""

PACK, PACK_BLOCKS = Kernel("prompt_pack", "prompt_pack"), 8
"""Blocks that share a tile's stages at most."""


@dataclass(frozen=True, slots=True)
class QuantisedPrompt:
    """Rows of x [rows, cols] as codes in the order of prompt_layout.h, with their scales d and negated sums m."""

    codes: torch.Tensor
    d: torch.Tensor
    m: torch.Tensor

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Of the three."""
        return self.codes.data_ptr(), self.d.data_ptr(), self.m.data_ptr()


@dataclass(frozen=True, slots=True)
class PromptInputs:
    """Rows of x by the number of values per scale, 32 or 16, as far as a format among the weights needs them."""

    rows: int
    cols: int
    by: dict[int, QuantisedPrompt]


@dataclass(frozen=True, slots=True)
class Packed:
    """The same as records (prompt_layout.h), those of all rows in order or of experts' tiles."""

    rows: int
    cols: int
    by: dict[int, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Panels:
    """Room for the unpacked matrices of some experts, or of one matrix, as records; `padded` rows each."""

    records: torch.Tensor
    padded: int


def stages(cols: int) -> int:
    """Stages of a row."""
    return -(-cols // STAGE)


def record_bytes(sub: int, minima: bool) -> int:
    """Of 64 rows and a stage, with one or both of their scales (prompt_layout.h)."""
    return TILE * STAGE + (STAGE // sub) * TILE * 4 * (2 if minima else 1)


def places_of(device: Device, cols: int, sub: int) -> int:
    """Address of the table that says where each sub-block of a row lies."""
    return device.constants(places(cols // sub)).data_ptr()


def room(device: Device, rows: int, cols: int, formats: set[QuantFormat]) -> dict[int, QuantisedPrompt]:
    """Memory for quantised rows as the codes among `formats` read them."""
    made = {}
    for sub in sorted({fmt.sub for fmt in formats if fmt.kind == "codes"}):
        wide = stages(cols) * STAGE
        codes = device.empty(rows, wide, dtype=torch.uint8)
        made[sub] = QuantisedPrompt(codes, device.empty(rows, wide // sub), device.empty(rows, wide // sub))
    return made


def arguments_of(device: Device, by: dict[int, QuantisedPrompt], cols: int) -> list[int]:
    """What the quantising kernels take of `room`, by 32 and by 16."""
    found = []
    for sub in (32, 16):
        known = by.get(sub)
        found += [*known.addresses, places_of(device, cols, sub)] if known else [0] * 4
    return found


def quantise(device: Device, x: torch.Tensor, formats: set[QuantFormat]) -> PromptInputs:
    """x float32 [rows, cols] for weights of these formats; ValueError when codes meet no whole blocks of 32 values."""
    rows, cols = x.shape
    by = room(device, rows, cols, formats)
    if by and cols % 32:
        raise ValueError(f"rows of {cols} values cannot be quantised: not a multiple of 32")
    if by and rows:
        known = arguments_of(device, by, cols)
        kernel = Kernel("prompt_inputs", "prompt_quantise")
        device.launch(kernel, blocks_for(rows * cols // 4), THREADS, 0, x.data_ptr(), *known, rows, cols)
    return PromptInputs(rows, cols, by)


def pack_grid(tiles: int, cols: int) -> tuple[int, int, int]:
    """Of the packing kernel for so many tiles of 64 rows."""
    return min(stages(cols), PACK_BLOCKS), max(1, tiles), 1


def pack(device: Device, inputs: PromptInputs) -> Packed:
    """All rows in order as records."""
    by = {}
    for sub, rows in inputs.by.items():
        by[sub] = device.empty(
            -(-inputs.rows // TILE) * stages(inputs.cols) * record_bytes(sub, True), dtype=torch.uint8
        )
        known = (*rows.addresses, 0, 0, 0, by[sub].data_ptr(), 0, 1, inputs.rows, 0, inputs.cols, sub)
        device.launch(PACK, pack_grid(-(-inputs.rows // TILE), inputs.cols), THREADS, 0, *known)
    return Packed(inputs.rows, inputs.cols, by)


def panels(device: Device, count: int, rows: int, cols: int, formats: Sequence[QuantFormat]) -> Panels:
    """Room for `count` matrices [rows, cols] of any of these formats."""
    tiles, each = -(-rows // TILE), max(record_bytes(fmt.sub, fmt.minima) for fmt in formats)
    return Panels(device.empty(count * tiles * stages(cols) * each, dtype=torch.uint8), tiles * TILE)


def unpack_bytes(device: Device, fmt: QuantFormat) -> int:
    """Shared memory of the unpacking kernels (prompt_unpack.h)."""
    piece = (launch.step_bytes(fmt) + 31) // 16 * 16 + 16
    return launch.table_bytes(device, fmt) + (2 if fmt.minima else 1) * 4 * 32 * 33 + 32 * piece


def unpack(device: Device, weight: Weight) -> Panels:
    """A matrix of codes as a panel."""
    fmt, made = weight.format, panels(device, 1, weight.rows, weight.cols, (weight.format,))
    place = places_of(device, weight.cols, fmt.sub)
    kernel, grid = Kernel(f"prompt_unpack STRATA_FORMAT={fmt.name}", "unpack_matrix"), (-(-weight.rows // 32), 1, 1)
    known = (*device.weight(weight), made.records.data_ptr(), place, weight.rows, weight.cols)
    device.launch(kernel, grid, THREADS, unpack_bytes(device, fmt), *known)
    return made


def depth(groups: int, fmt: QuantFormat) -> int:
    """Stages in shared memory (prompt_loader.h)."""
    return 2 if groups == 1 or (fmt.sub == 16 and fmt.minima) else 3


def shared_bytes(groups: int, fmt: QuantFormat) -> int:
    """Dynamic shared memory of a block of the products: arrivals, stages, sums that wait."""
    stage = (groups + 1) * record_bytes(fmt.sub, fmt.minima)
    return ARRIVALS + depth(groups, fmt) * stage + DEEP_LEVELS * RESULTS * GROUP_THREADS * groups * 4


def groups_for(device: Device, formats: Sequence[QuantFormat], units: int) -> int:
    """Large blocks where the shared memory allows them and there are `units` enough of them for all processors.

    On the host blocks are small.
    """
    if device.torch_device.type != "cuda" or units < device.processors:
        return GROUPS[-1]
    most = device.shared.dynamic
    return next((n for n in GROUPS if all(shared_bytes(n, fmt) <= most for fmt in formats)), GROUPS[-1])


def blocks_of(device: Device, groups: int, units: int) -> int:
    """Blocks of a launch, which take units in turn: as many as the processors hold at once."""
    return min(units, device.processors * BLOCKS[groups])


def kernel_of(fmt: QuantFormat, groups: int) -> Kernel:
    """The products of a format."""
    defines = f"STRATA_SUB={fmt.sub} STRATA_MINIMA={int(fmt.minima)} STRATA_GROUPS={groups}"
    return Kernel(f"prompt_products {defines}", "prompt_products")


def product(device: Device, inputs: Packed, weight: Weight, y: torch.Tensor) -> None:
    """y [rows, weight.rows] = x W^T for a matrix of codes."""
    fmt, made, across = weight.format, unpack(device, weight), -(-weight.rows // TILE)
    groups = groups_for(device, (fmt,), -(-inputs.rows // (TILE * GROUPS[0])) * across)
    units = -(-inputs.rows // (TILE * groups)) * across
    operands = (inputs.by[fmt.sub].data_ptr(), made.records.data_ptr())
    no_experts = (0, 0, 0, 0, 0, 0)
    sizes = (inputs.rows, 0, -1, y.data_ptr(), weight.rows, inputs.cols, made.padded, launch.bits(weight.scale))
    threads, grid = GROUP_THREADS * groups + MORE_THREADS, (blocks_of(device, groups, units), 1, 1)
    device.launch(kernel_of(fmt, groups), grid, threads, shared_bytes(groups, fmt), *operands, *no_experts, *sizes)


def linear(device: Device, x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
    """See Ops.linear: x is quantised once, and once put in the order that plain floats need.

    ValueError when x is not float32 [T, cols of every weight] or a weight's planes do not fit.
    """
    rows, cols = x.shape
    floats(device, "linear: x", x, (rows, cols))
    for weight in weights:
        if weight.cols != cols:
            raise ValueError(f"rows of {cols} values for a weight of {weight.cols} columns")
    inputs = pack(device, quantise(device, x, {weight.format for weight in weights}))
    arranged = None
    outputs = tuple(device.empty(rows, weight.rows) for weight in weights)
    for weight, y in zip(weights, outputs, strict=True):
        if weight.format.kind == "codes" and rows:
            product(device, inputs, weight, y)
        elif rows:
            arranged = prompt_floats.arrange_rows(device, x) if arranged is None else arranged
            prompt_floats.product(device, arranged, weight, y)
    return outputs
