"""Copies of rows and what follows from positions: the specification and C++."""

import pytest
import torch

from kernels.layer_cases import every_way, native, normal
from strata.kernels.rows import cpu, naive


def test_views_of_any_strides_stand_side_by_side() -> None:
    x, y = normal(1, 5, 3, 2, 8), normal(2, 5, 12)
    views = [x[:, :, 0], y[:, 2:7], x[:, 1], x.permute(0, 3, 1, 2)[:, ::2], y[:, :1]]
    expected = torch.cat([view.flatten(1) for view in views], 1)
    assert torch.equal(naive.join(views), expected)
    every_way(lambda n: [cpu.join(n, views)], [expected])
    every_way(lambda n: [cpu.join(n, [y] * 3)], [y.repeat(1, 3)])
    turned = cpu.join(native("portable", 1), views[::-1])
    assert not torch.equal(turned, expected)


def test_views_that_cannot_be_joined_are_refused() -> None:
    n = native("portable", 1)
    for wrong in (normal(1, 4, 3), normal(1, 5, 2, 2, 2, 2), normal(1, 5, 3).double()):
        with pytest.raises(ValueError, match="join: expected float32 views of 5 rows on the CPU, found"):
            cpu.join(n, [normal(2, 5, 2), wrong])


def test_rows_are_taken_in_the_order_asked() -> None:
    x, index = normal(1, 6, 40), torch.tensor([5, 0, 5, 2], dtype=torch.int32)
    assert torch.equal(naive.take_rows(x, index), x[[5, 0, 5, 2]])
    every_way(lambda n: [cpu.take_rows(n, x, index)], [x[[5, 0, 5, 2]]])
    for bad in (-1, 6):
        wrong = torch.tensor([0, bad], dtype=torch.int32)
        for take in (naive.take_rows, lambda a, b: cpu.take_rows(native("portable", 1), a, b)):
            with pytest.raises(IndexError, match=f"row {bad} of 6"):
                take(x, wrong)


@pytest.mark.parametrize("ratio", [1, 3, 4])
def test_a_block_is_complete_at_its_last_position(ratio: int) -> None:
    positions = torch.arange(14, dtype=torch.int32)
    expected = [(p // ratio, p - ratio + 1) if p % ratio == ratio - 1 else (-1, 0) for p in range(14)]
    for blocks, starts in (
        naive.completed_blocks(positions, ratio),
        cpu.completed_blocks(native("portable", 1), positions, ratio),
    ):
        assert list(zip(blocks.tolist(), starts.tolist(), strict=True)) == expected
