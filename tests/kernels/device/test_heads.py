"""attention_inputs on the emulator: the bits of the operations that it joins, for planes of every type."""

import pytest
import torch

from kernels.device.device_cases import on_device
from kernels.layer_cases import empty_plane, normal, paged, rows_of, same_bits
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.ops import Ops, RopeLayout
from strata.kernels.views import HeadNorms, IndexInputs, KvType, Rows

TABLE = torch.tensor([[3, 0], [1, 5], [2, 4]], dtype=torch.int32)
ROWS = rows_of([(0, 3, 2), (2, 7, 1)])


def run(
    ops: Ops,
    heads: tuple[int, int, int, int],
    layout: RopeLayout = "halves",
    types: tuple[KvType, KvType] = ("f32", "f32"),
    normed: bool = True,
    gated: bool = False,
) -> list[torch.Tensor]:
    """Queries, keys and both planes after a step; heads = (queries, KV, dims, rotated)."""
    queries, kv, dim, rotary = heads
    wide = normal(1, 3, queries, 2, dim)
    q = wide[:, :, 0] if gated else wide[:, :, 0].contiguous()
    norms = HeadNorms(normal(2, dim), normal(3, dim), 1e-6) if normed else None
    keys, values = (empty_plane(TABLE, 6, 4, (kv, dim), kind) for kind in types)
    angles = (normal(4, 3, rotary // 2), normal(5, 3, rotary // 2))
    found = ops.attention_inputs(
        q, normal(6, 3, kv, dim), normal(7, 3, kv, dim), norms, angles, layout, keys, values, ROWS
    )
    planes = [x for plane in (keys, values) for x in (plane.data, plane.scales) if x is not None]
    return [*found, *(x.float() if x.dtype is torch.bfloat16 else x for x in planes)]


CASES = [
    ((4, 2, 32, 32), "halves", ("f32", "f32"), True, False),
    ((3, 1, 40, 24), "halves", ("bf16", "f32"), True, True),
    ((2, 2, 64, 64), "pairs", ("int8", "bf16"), False, False),
    ((2, 1, 256, 64), "halves", ("bf16", "int8"), True, True),
    ((5, 1, 24, 10), "pairs", ("f32", "bf16"), True, False),
    ((1, 1, 288, 64), "halves", ("f32", "f32"), True, False),  # wider than the kernel takes
]


@pytest.mark.parametrize(("heads", "layout", "types", "normed", "gated"), CASES)
def test_bits_of_the_operations(
    heads: tuple[int, int, int, int],
    layout: RopeLayout,
    types: tuple[KvType, KvType],
    normed: bool,
    gated: bool,
) -> None:
    expected = run(NaiveOps(), heads, layout, types, normed, gated)
    on_device(lambda device: run(GpuOps(device), heads, layout, types, normed, gated), expected)


def test_the_order_of_pairs_and_a_norm_show() -> None:
    """Negative controls."""
    heads, device = (4, 2, 32, 32), HostDevice()
    expected = run(NaiveOps(), heads)
    assert device.launches == 0 and all(map(same_bits, run(GpuOps(device), heads), expected))
    assert device.launches == 1
    assert not any(map(same_bits, run(GpuOps(device), heads, layout="pairs")[:3], expected[:3]))
    assert not any(map(same_bits, run(GpuOps(device), heads, normed=False)[:3], expected[:3]))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="20 angles do not fit heads of 32"):
        run(GpuOps(HostDevice()), (2, 1, 32, 40))
    keys = empty_plane(TABLE, 6, 4, (1, 32), "f32")
    angles = (normal(4, 3, 16), normal(5, 3, 16))
    q, k = normal(1, 3, 32, 2).transpose(1, 2), normal(6, 3, 1, 32)
    with pytest.raises(ValueError, match="with heads in one piece"):
        GpuOps(HostDevice()).attention_inputs(q, k, k, None, angles, "halves", keys, keys, ROWS)


def indexed(ops: Ops, dim: int, rotary: int, layout: RopeLayout, ratio: int, rows: Rows = ROWS) -> list[torch.Tensor]:
    """Queries, raw keys and keys of blocks after a step of an indexer with three heads."""
    count, raw_keys = len(rows.slot), paged(8, [8, 8, 8], 4, (dim,))
    block_keys = empty_plane(raw_keys.table, raw_keys.data.shape[0], 4 // ratio, (dim,), "f32")
    angles, frequencies = (
        (normal(4, count, rotary // 2), normal(5, count, rotary // 2)),
        normal(9, rotary // 2).double(),
    )
    raw, weight = normal(6, count, dim), normal(7, dim)
    q = ops.index_inputs(normal(1, count, 3, dim), raw, weight, 1e-6, angles, layout, raw_keys, rows)
    ops.complete_blocks(raw_keys, block_keys, rows, ratio, weight, 1e-6, frequencies, layout)
    return [q, raw_keys.data, block_keys.data]


@pytest.mark.parametrize(
    ("dim", "rotary", "layout", "ratio"), [(40, 24, "halves", 4), (128, 64, "pairs", 2), (288, 64, "halves", 2)]
)
def test_an_indexers_inputs(dim: int, rotary: int, layout: RopeLayout, ratio: int) -> None:
    rows = rows_of([(0, 2, 3), (2, 5, 1), (1, 7, 1)])  # of blocks of four, rows 1 and 4 end one
    expected = indexed(NaiveOps(), dim, rotary, layout, ratio, rows)
    assert expected[2].isfinite().any()
    on_device(lambda device: indexed(GpuOps(device), dim, rotary, layout, ratio, rows), expected)
    device = HostDevice()
    other = indexed(GpuOps(device), dim, rotary, "pairs" if layout == "halves" else "halves", ratio, rows)
    assert device.launches == (2 if dim <= 256 else 9)
    assert same_bits(other[1], expected[1]) and not any(map(same_bits, other[::2], expected[::2]))


def together(
    ops: Ops, sizes: tuple[int, int, int], layout: RopeLayout, rows: Rows, blocks_of: float = 1.0
) -> list[torch.Tensor]:
    """Heads for attention and for an indexer in one operation: sizes are dims of both and what is rotated."""
    dim, index_dim, rotary = sizes
    count, raw_keys = len(rows.slot), paged(8, [8, 8, 8], 4, (index_dim,))
    block_keys = empty_plane(raw_keys.table, raw_keys.data.shape[0], 2, (index_dim,), "f32")
    keys, values = (empty_plane(TABLE, 6, 4, (2, dim), kind) for kind in KINDS)
    angles = (normal(4, count, rotary // 2), normal(5, count, rotary // 2))
    index = IndexInputs(
        q=normal(1, count, 3, index_dim),
        raw=normal(6, count, index_dim),
        norms=HeadNorms(normal(7, index_dim), blocks_of * normal(8, index_dim), 1e-6),
        frequencies=normal(9, rotary // 2).double(),
        raw_keys=raw_keys,
        block_keys=block_keys,
        ratio=2,
    )
    q, kv = normal(10, count, 4, 2, dim)[:, :, 0], normal(11, count, 2, dim)
    norms = HeadNorms(normal(2, dim), normal(3, dim), 1e-5)
    found = ops.indexed_inputs(q, kv, kv, norms, angles, layout, keys, values, rows, index)
    planes = (keys.data.float(), values.data, raw_keys.data, block_keys.data)
    return [*found, *planes]


KINDS: tuple[KvType, KvType] = ("bf16", "f32")


@pytest.mark.parametrize(
    ("sizes", "layout", "launches"),
    [((64, 40, 24), "halves", 1), ((256, 128, 64), "pairs", 1), ((64, 288, 64), "halves", 10)],
)
def test_heads_and_an_indexers_in_one_launch(sizes: tuple[int, int, int], layout: RopeLayout, launches: int) -> None:
    rows = rows_of(
        [(0, 2, 4), (2, 5, 1), (1, 7, 1)]
    )  # blocks of two: one in the cache in part, one of this step's rows alone
    expected = together(NaiveOps(), sizes, layout, rows)
    on_device(lambda device: together(GpuOps(device), sizes, layout, rows), expected)
    device = HostDevice()
    other = together(GpuOps(device), sizes, layout, rows, blocks_of=2.0)
    assert device.launches == launches
    assert all(map(same_bits, other[:-1], expected[:-1])) and not same_bits(other[-1], expected[-1])
