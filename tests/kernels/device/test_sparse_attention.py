"""select_blocks and sparse_attention on the emulated device: the specification's choices and bits."""

import pytest
import torch

from kernels.layer_cases import normal, paged, poisoned, rows_of, same_bits
from strata.kernels.attention import gpu as attention_gpu
from strata.kernels.host_device import HostDevice
from strata.kernels.sparse_attention import gpu, naive

SELECT = [
    # index heads, d, ratio, budget, segments
    (2, 32, 4, 3, [(0, 0, 1)]),
    (4, 40, 4, 3, [(0, 2, 3), (1, 50, 2)]),
    (1, 16, 2, 0, [(0, 9, 2)]),
    (3, 64, 1, 20, [(1, 299, 2), (0, 12, 1)]),
    (2, 32, 16, 100, [(0, 600, 1)]),
]


@pytest.mark.parametrize(("heads", "dim", "ratio", "budget", "segments"), SELECT)
def test_choices_of_the_specification(
    heads: int, dim: int, ratio: int, budget: int, segments: list[tuple[int, int, int]]
) -> None:
    rows = rows_of(segments)
    lengths = [max([(p + n) // ratio for s, p, n in segments if s == slot], default=1) + 1 for slot in range(2)]
    keys, q = paged(1, lengths, 4, (dim,)), normal(2, len(rows.slot), heads, dim)
    q[:, :, : dim // 2] = 0.0  # many scores are exactly 0
    with poisoned():
        found = gpu.select_blocks(HostDevice(order=3), q, keys, rows, ratio, budget)
    for a, b in zip(found, naive.select_blocks(q, keys, rows, ratio, budget), strict=True):
        assert torch.equal(a, b)


def test_ties_and_nan_rank_as_the_specification_says() -> None:
    rows, keys = rows_of([(0, 399, 1)]), paged(1, [401], 16, (8,))
    q = torch.zeros(1, 2, 8)
    q[0, 0, 0] = 1.0
    keys.data[:, :, 1:] = 0.0
    keys.data[:, :, 0] = keys.data[:, :, 0].sign() * 2.0
    keys.data[int(keys.table[0, 3]), 5, 0] = float("nan")
    for budget in (1, 7, 150, 250, 399, 400):
        found, expected = (
            select(q, keys, rows, 1, budget)
            for select in (lambda *a: gpu.select_blocks(HostDevice(), *a), naive.select_blocks)
        )
        assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
    assert 3 * 16 + 5 in gpu.select_blocks(HostDevice(), q, keys, rows, 1, 1)[0]


def test_rows_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, keys, q = rows_of([(0, 40, 5)]), paged(1, [12], 4, (16,)), normal(2, 5, 2, 16)
    monkeypatch.setattr(gpu, "MOST_SCORES", 40)
    found, expected = gpu.select_blocks(HostDevice(), q, keys, rows, 4, 3), naive.select_blocks(q, keys, rows, 4, 3)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


@pytest.mark.parametrize("most", [32, 0])
def test_listed_positions(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    rows, q = rows_of([(0, 699, 2), (1, 30, 1)]), normal(3, 3, 6, 64)
    keys, values = paged(1, [701, 31], 16, (2, 64)), paged(2, [701, 31], 16, (2, 64))
    positions = torch.full((3, 300), -1, dtype=torch.int32)
    positions[0, :280] = torch.arange(0, 700, 5)[:140].repeat_interleave(2).to(torch.int32) + torch.tensor(
        [0, 1]
    ).repeat(140)
    positions[1, :3] = torch.tensor([7, 8, 700])
    count = torch.tensor([280, 3, 0], dtype=torch.int32)
    monkeypatch.setattr(attention_gpu, "MOST_ROWS", most)
    with poisoned():
        found = gpu.sparse_attention(HostDevice(order=5), q, keys, values, rows, 0.1, positions, count)
    expected = naive.sparse_attention(q, keys, values, rows, 0.1, positions, count)
    assert same_bits(found, expected) and found[2].isnan().all()
    positions[1, 1] = 9  # negative control
    assert not same_bits(gpu.sparse_attention(HostDevice(), q, keys, values, rows, 0.1, positions, count), expected)
