"""What `bench kernels` runs: random operands, so many of them that every call reads memory and not the caches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels import _native
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.native import describe
from strata.kernels.views import KV_BLOCK, ExpertBank, KvType, PagedPlane, Rows, Weight
from strata.quant.decode import dequantise
from strata.quant.format import QuantFormat
from strata.quant.formats import FORMATS
from strata.state.layout import KvLayout, LayerLayout
from strata.state.sequence import KV_DTYPES

Bytes = npt.NDArray[np.uint8]
Measured = CpuOps | GpuOps
"""What can be measured."""

POOL_ROWS = 16
"""A matrix repeats this many random rows."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel on one shape. `calls` gives a call at a time, each on operands that the last calls did not touch."""

    kernel: str
    shape: str
    rows: int
    nbytes: int
    """What one call has to read (weights, keys and values) or read and write (states); the mean over calls."""
    macs: int
    """Multiply-adds of one call; 0 where that says nothing."""
    calls: Iterator[Callable[[], object]]
    recordable: bool = True
    """Whether the calls are operations, which a program of a device can record."""


def memory_of(ops: Measured) -> torch.device:
    """Where the operands lie."""
    return ops.device.torch_device if isinstance(ops, GpuOps) else torch.device("cpu")


def random_weight(name: str, rows: int, cols: int, rng: np.random.Generator) -> Weight:
    """Random codes in format `name`."""
    fmt = FORMATS[name]
    repeat = rng.integers(0, POOL_ROWS, rows)
    planes = [random_blocks(fmt, POOL_ROWS * cols // fmt.block, rng).reshape(POOL_ROWS, -1)[repeat]]
    if fmt.scale_block is not None:
        high, wide = fmt.scale_block
        shape = (-(-rows // high), -(-cols // wide))
        planes.append(np.full(shape, 0.01, np.float32) if high > 1 else np.full(shape, 0x20, np.uint8))
    return Weight(fmt, rows, cols, tuple(torch.from_numpy(plane) for plane in planes))


def random_blocks(fmt: QuantFormat, count: int, rng: np.random.Generator) -> Bytes:
    """uint8 [count, block_bytes]: random bytes, without blocks whose scales are tiny, huge or no numbers.

    Encoding random numbers instead takes seconds for some i-quants.
    """
    found: list[Bytes] = []
    while sum(map(len, found)) < count:
        raw = rng.integers(0, 256, (count, fmt.block_bytes), dtype=np.uint8)
        if fmt.scale_block is not None:  # FP8 and FP4 with their scales apart: 0xBF clears a bit that every NaN has
            found.append(raw & np.uint8(0xBF))
            continue
        size = np.abs(dequantise(fmt, raw)).max(axis=1)
        found.append(raw[(size > 1e-3) & (size < 1e3)])
    return np.concatenate(found)[:count]


def read_case(ops: Measured, megabytes: int) -> Case:
    """Every byte of a big matrix, looked at and nothing more: what the memory gives these threads, or the device (by
    torch's sum)."""
    if isinstance(ops, GpuOps):
        values = torch.ones(megabytes * 250_000, device=memory_of(ops))
        return Case("read", f"{megabytes} MB", 1, values.nbytes, 0, cycle([values.sum]), recordable=False)
    rows = -(-megabytes * 1_000_000 // 4096)
    # From numpy as the other operands, whose large arrays may lie in huge pages.
    weight = Weight(FORMATS["F32"], rows, 1024, (torch.from_numpy(np.ones((rows, 4096), np.uint8)),))
    x, y = torch.empty(1024), torch.empty(rows)
    call = partial(_native.probe, ops.native.handle, "read", describe(weight), x.data_ptr(), y.data_ptr())
    # The closure keeps what the addresses point to.
    return Case("read", f"{megabytes} MB", 1, rows * 4096, 0, cycle([lambda: (call(), weight, x, y)]))


def linear_case(ops: Measured, weight: Weight, rows: int, rng: np.random.Generator) -> Case:
    """`rows` rows times a matrix larger than the last-level cache."""
    x = torch.from_numpy(rng.standard_normal((rows, weight.cols), dtype=np.float32)).to(memory_of(ops))
    nbytes = sum(plane.numel() * plane.element_size() for plane in weight.planes)
    macs = rows * weight.rows * weight.cols
    return Case("linear", weight.format.name, rows, nbytes, macs, cycle([partial(ops.linear, x, [weight])]))


@dataclass(frozen=True, slots=True)
class Bank:
    """Experts to choose from: `count` of them, `width` x `hidden`, `top_k` per row."""

    name: str
    bank: ExpertBank
    top_k: int

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert."""
        matrices = (self.bank.gate[0], self.bank.up[0], self.bank.down[0])
        return sum(plane.numel() * plane.element_size() for matrix in matrices for plane in matrix.planes)


def random_bank(name: str, megabytes: int, rng: np.random.Generator) -> Bank:
    """Qwen3-30B-A3B's experts, `name` being "gate and up format+down format"; at least `megabytes` of them."""
    width, hidden, top_k = 768, 2048, 8
    outer, _, inner = name.partition("+")
    one = FORMATS[outer].row_bytes(hidden) * 2 * width + FORMATS[inner].row_bytes(width) * hidden
    count = max(2 * top_k, -(-megabytes * 1_000_000 // one))
    gate = random_weight(outer, count * 2 * width, hidden, rng)
    down = random_weight(inner, count * hidden, width, rng)
    return Bank(name, ExpertBank(parts(gate, 2 * count)[::2], parts(gate, 2 * count)[1::2], parts(down, count)), top_k)


def parts(weight: Weight, count: int) -> tuple[Weight, ...]:
    """`count` matrices out of the rows of one."""
    rows = weight.rows // count
    cut = (weight.planes[0][i * rows : (i + 1) * rows] for i in range(count))
    return tuple(Weight(weight.format, rows, weight.cols, (plane,)) for plane in cut)


def experts_case(ops: Measured, bank: Bank, rows: int, rng: np.random.Generator) -> Case:
    """`rows` rows, each with its own drawn experts; the first row's go round, so that one row reads memory too."""
    count, top_k, where = len(bank.bank.gate), bank.top_k, memory_of(ops)
    x = torch.from_numpy(rng.standard_normal((rows, bank.bank.gate[0].cols), dtype=np.float32)).to(where)
    factors = torch.full((rows, top_k), 1.0 / top_k, device=where)
    choices = []
    for turn in range(max(8, count // top_k)):
        first = [(turn * top_k + i) % count for i in range(top_k)]
        drawn = [first, *(rng.permutation(count)[:top_k].tolist() for _ in range(rows - 1))]
        choices.append(torch.tensor(drawn, dtype=torch.int32))
    distinct = sum(len(set(ids.flatten().tolist())) for ids in choices) / len(choices)
    calls = [partial(ops.experts, x, ids.to(where), factors, bank.bank) for ids in choices]
    macs = rows * top_k * 3 * bank.bank.gate[0].rows * bank.bank.gate[0].cols
    return Case("experts", bank.name, rows, round(distinct * bank.expert_bytes), macs, cycle(calls))


def one_segment(slot: int, position: int, rows: int, where: torch.device) -> Rows:
    """`rows` rows of one slot from `position` on."""
    return Rows(
        torch.full((rows,), slot, dtype=torch.int32, device=where),
        torch.arange(position, position + rows, dtype=torch.int32, device=where),
        torch.tensor([[slot, 0, rows]], dtype=torch.int32, device=where),
    )


def attention_case(
    ops: Measured, heads: tuple[int, int, int], kv_type: KvType, context: int, megabytes: int, rng: np.random.Generator
) -> Case:
    """One row over `context` positions, in as many sequences as fill `megabytes`; heads = (queries, KV, size)."""
    (queries, kv, dim), where = heads, memory_of(ops)
    page = 256
    pages = -(-context // page)
    nbytes = LayerLayout(kv=KvLayout(kv, dim)).token_bytes(kv_type) * context
    slots = max(2, -(-megabytes * 1_000_000 // nbytes))
    table = torch.arange(slots * pages, dtype=torch.int32, device=where).reshape(slots, pages)
    block = torch.from_numpy(rng.standard_normal((1, kv, page, dim), dtype=np.float32)).to(where)
    stored = block.to(KV_DTYPES[kv_type]).repeat(slots * pages, 1, 1, 1)
    shape_of_scales = (*stored.shape[:-1], dim // KV_BLOCK)
    scales = torch.full(shape_of_scales, 0.1, device=where) if kv_type == "int8" else None
    keys, values = (PagedPlane(each, table, scales) for each in (stored, stored.clone()))
    q = torch.from_numpy(rng.standard_normal((1, queries, dim), dtype=np.float32)).to(where)
    rows = [one_segment(slot, context - 1, 1, where) for slot in range(slots)]
    calls = [partial(ops.attention, q, keys, values, row, dim**-0.5) for row in rows]
    shape = f"{queries}/{kv} heads of {dim}, {context} {kv_type}"
    return Case("attention", shape, 1, nbytes, 2 * queries * context * dim, cycle(calls))


def delta_case(ops: Measured, rows: int, megabytes: int, rng: np.random.Generator) -> Case:
    """`rows` rows of one sequence through Qwen3-Next's delta rule, in as many sequences as fill `megabytes`."""
    key_heads, value_heads, dim = 16, 32, 128
    nbytes, where = 2 * value_heads * dim * dim * 4, memory_of(ops)
    state = torch.zeros(max(2, -(-megabytes * 1_000_000 // (nbytes // 2))), value_heads, dim, dim, device=where)
    qkv = torch.from_numpy(rng.standard_normal((rows, (2 * key_heads + value_heads) * dim), dtype=np.float32)).to(where)
    beta, decay = (torch.full((rows, value_heads), value, device=where) for value in (0.5, 0.9))
    segments = [one_segment(slot, 0, rows, where) for slot in range(len(state))]
    calls = [partial(ops.delta_rule, qkv, beta, decay, state, part, key_heads, "grouped", 1e-6) for part in segments]
    return Case(
        "delta rule", f"{value_heads} heads of {dim} x {dim}", rows, nbytes, 3 * rows * nbytes // 8, cycle(calls)
    )
