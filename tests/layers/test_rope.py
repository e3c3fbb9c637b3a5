"""Angles are those of the formula, and only the rotary dims turn."""

import math

import pytest
import torch

from models.made import ops_of
from strata.kernels.naive_ops import NaiveOps
from strata.layers.rope import Rope


@pytest.mark.parametrize("make", [NaiveOps, ops_of])
def test_angles_are_rounded_once_from_double_precision(make):
    rope = Rope(8, 1e4, "halves", factors=(1.0, 2.0, 4.0, 8.0))
    cos, sin = rope.angles(make(), torch.tensor([0, 300, 262_143], dtype=torch.int32))
    for row, position in enumerate((0, 300, 262_143)):
        for i in range(4):
            angle = position * (1e4 ** (-2.0 * i / 8) / 2.0**i)
            assert float(cos[row, i]) == float(torch.tensor(math.cos(angle), dtype=torch.float32))
            assert float(sin[row, i]) == float(torch.tensor(math.sin(angle), dtype=torch.float32))


def test_angles_do_not_depend_on_how_many_are_asked_at_once():
    ops, rope = ops_of(), Rope(16, 1e6, "halves")
    everywhere = torch.arange(600, dtype=torch.int32)
    cos, sin = rope.angles(ops, everywhere)
    for position in range(0, 600, 97):
        alone = rope.angles(ops, everywhere[position : position + 1].clone())
        assert torch.equal(alone[0][0], cos[position]) and torch.equal(alone[1][0], sin[position])
    assert not torch.equal(cos[1], cos[2])


def test_the_dims_beyond_the_rotary_ones_pass():
    x = torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(0))
    y = Rope(8, 1e4, "halves")(ops_of(), x, torch.tensor([0, 5], dtype=torch.int32))
    assert (
        torch.equal(y[0], x[0]) and torch.equal(y[1, :, 8:], x[1, :, 8:]) and not torch.equal(y[1, :, :8], x[1, :, :8])
    )
    assert Rope(8, 1e4, "halves")(ops_of(), x[:0], torch.empty(0, dtype=torch.int32)).shape == (0, 3, 12)
