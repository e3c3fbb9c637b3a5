"""Angles do not depend on how many positions were asked for at once."""

import math

import torch

from models.made import ops_of
from strata.layers.rope import GROWTH, Rope


def test_angles_are_the_same_however_the_table_grew():
    slow, fast = Rope(8, 1e4, "halves"), Rope(8, 1e4, "halves")
    for position in range(0, 3 * GROWTH, 97):
        slow.at(torch.tensor([position], dtype=torch.int32), position + 1)
    everywhere = torch.arange(3 * GROWTH, dtype=torch.int32)
    for a, b in zip(slow.at(everywhere, 3 * GROWTH), fast.at(everywhere, 3 * GROWTH), strict=True):
        assert torch.equal(a, b)


def test_angles_are_rounded_once_from_double_precision():
    rope = Rope(8, 1e4, "halves", factors=(1.0, 2.0, 4.0, 8.0))
    cos, sin = rope.at(torch.tensor([300], dtype=torch.int32), 301)
    for i in range(4):
        angle = 300 * (1e4 ** (-2.0 * i / 8) / 2.0**i)
        assert float(cos[0, i]) == float(torch.tensor(math.cos(angle), dtype=torch.float32))
        assert float(sin[0, i]) == float(torch.tensor(math.sin(angle), dtype=torch.float32))


def test_the_dims_beyond_the_rotary_ones_pass():
    x = torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(0))
    y = Rope(8, 1e4, "halves")(ops_of(), x, torch.tensor([0, 5], dtype=torch.int32))
    assert (
        torch.equal(y[0], x[0]) and torch.equal(y[1, :, 8:], x[1, :, 8:]) and not torch.equal(y[1, :, :8], x[1, :, :8])
    )
    assert Rope(8, 1e4, "halves")(ops_of(), x[:0], torch.empty(0, dtype=torch.int32)).shape == (0, 3, 12)
