"""sparse_attention for the rows of a prompt on the emulated device: the specification's bits."""

import pytest
import torch

from kernels.layer_cases import normal, paged, poisoned, rows_of, same_bits
from strata.kernels.host_device import HostDevice
from strata.kernels.sparse_attention import naive, prompt
from strata.kernels.views import KvType


def lists(lengths: list[int], longest: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions of each row, increasing, and their counts."""
    generator = torch.Generator().manual_seed(seed)
    positions = torch.full((len(lengths), max(lengths) + 4), -1, dtype=torch.int32)
    for row, length in enumerate(lengths):
        positions[row, :length] = torch.randperm(longest, generator=generator)[:length].sort().values.to(torch.int32)
    return positions, torch.tensor(lengths, dtype=torch.int32)


@pytest.mark.parametrize(
    ("dim", "queries", "kv_type"),
    [(128, 3, "f32"), (128, 2, "bf16"), (128, 4, "bf16"), (256, 1, "int8"), (64, 2, "f32")],
)
def test_bits_of_the_specification(dim: int, queries: int, kv_type: KvType) -> None:
    """Lists of no, one, odd and many positions; in the largest a second round begins (dim 256: after 1,536)."""
    longest = 1600 if dim == 256 else 600
    rows, q = rows_of([(0, longest - 4, 3), (1, 30, 2)]), normal(3, 5, 2 * queries, dim)
    keys, values = (paged(seed, [longest, 33], 16, (2, dim), kv_type) for seed in (1, 2))
    positions, count = lists([longest - 9, 0, 259], longest, 5)
    more, few = lists([1, 7], 30, 6)
    positions = torch.cat((positions, torch.nn.functional.pad(more, (0, positions.shape[1] - more.shape[1]), value=-1)))
    count = torch.cat((count, few))
    with poisoned():
        found = prompt.sparse_attention(HostDevice(order=5), q, keys, values, rows, 0.1, positions, count)
    expected = naive.sparse_attention(q, keys, values, rows, 0.1, positions, count)
    assert same_bits(found, expected)
    assert found[1].isnan().all()
    positions[2, 1] += 1  # negative control
    moved = prompt.sparse_attention(HostDevice(), q, keys, values, rows, 0.1, positions, count)
    assert [same_bits(a, b) for a, b in zip(moved, expected, strict=True)] == [True, True, False, True, True]


@pytest.mark.parametrize(("heads", "dim"), [(4, 128), (2, 64), (3, 32)])
def test_choices_of_the_specification(heads: int, dim: int) -> None:
    """Rows of two slots in one tile, an odd number of them, rows without a block, scores that are exactly 0, a NaN."""
    rows = rows_of([(0, 1, 3), (1, 300, 4)])
    keys, q = paged(1, [40, 80], 4, (dim,)), normal(2, len(rows.slot), heads, dim)
    q[:, :, : dim // 2] = 0.0
    keys.data[int(keys.table[1, 3]), 2, 0] = float("nan")
    for budget in (1, 20):
        with poisoned():
            found = prompt.select_blocks(HostDevice(order=3), q, keys, rows, 4, budget)
        for a, b in zip(found, naive.select_blocks(q, keys, rows, 4, budget), strict=True):
            assert torch.equal(a, b)
    changed = prompt.select_blocks(HostDevice(), -q, keys, rows, 4, 20)  # negative control
    assert not torch.equal(changed[0], found[0])


def test_values_that_are_not_finite() -> None:
    rows, q = rows_of([(0, 500, 2)]), normal(3, 2, 6, 128)
    keys, values = (paged(seed, [600], 16, (2, 128)) for seed in (1, 2))
    q[0, 1, 5], keys.data[3, 0, 2, 7] = float("inf"), float("nan")
    q[1] *= 90.0  # exponentials that are subnormal or 0
    positions, count = lists([400, 300], 500, 5)
    found = prompt.sparse_attention(HostDevice(), q, keys, values, rows, 0.1, positions, count)
    assert same_bits(found, naive.sparse_attention(q, keys, values, rows, 0.1, positions, count))


def test_shared_memory_is_what_a_block_may_have() -> None:
    assert all(prompt.shared_bytes(dim, 16) <= 227 << 10 for dim in prompt.DIMS)
