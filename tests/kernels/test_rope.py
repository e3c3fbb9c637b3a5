"""rope: against complex rotation in float64, and C++ against the specification bit for bit."""

import math

import pytest
import torch

from kernels.layer_cases import every_way, native, normal, same_bits
from strata.kernels.ops import RopeLayout
from strata.kernels.rope import cpu, naive

LAYOUTS: list[RopeLayout] = ["halves", "pairs"]


def angles(rows: int, half: int) -> torch.Tensor:
    return torch.outer(torch.arange(rows).double() * 37, 10000.0 ** (-torch.arange(half).double() / max(half, 1)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dim", "half"), [(24, 12), (64, 16), (128, 64), (32, 0), (5, 2)])
def test_rotation(layout: RopeLayout, dim: int, half: int) -> None:
    x, angle = normal(1, 6, 3, dim), angles(6, half)
    cos, sin = angle.cos().float(), angle.sin().float()
    turned = x[..., : 2 * half].double()
    pair = (
        torch.complex(turned[..., :half], turned[..., half:])
        if layout == "halves"
        else torch.complex(turned[..., 0::2], turned[..., 1::2])
    ) * torch.polar(torch.ones_like(angle), angle)[:, None]
    expected = x.double().clone()
    if layout == "halves":
        expected[..., : 2 * half] = torch.cat([pair.real, pair.imag], -1)
    else:
        expected[..., : 2 * half] = torch.stack([pair.real, pair.imag], -1).flatten(-2)
    found = naive.rope(x, cos, sin, layout)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    every_way(lambda n: [cpu.rope(n, x, cos, sin, layout)], [found])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_rows_use_all_threads(layout: RopeLayout) -> None:
    x, angle = normal(1, 100, 8, 128), angles(100, 32)
    every_way(
        lambda n: [cpu.rope(n, x, angle.cos().float(), angle.sin().float(), layout)],
        [naive.rope(x, angle.cos().float(), angle.sin().float(), layout)],
    )


def test_the_layouts_differ_and_a_changed_angle_shows() -> None:
    x, angle = normal(1, 6, 3, 64), angles(6, 16)
    cos, sin = angle.cos().float(), angle.sin().float()
    n = native("portable", 1)
    expected = naive.rope(x, cos, sin, "halves")
    assert not same_bits(cpu.rope(n, x, cos, sin, "pairs"), expected)
    cos[5, 15] += 1e-3
    found = cpu.rope(n, x, cos, sin, "halves")
    assert not same_bits(found, expected) and same_bits(found[:5], expected[:5])


def test_wrong_shapes_are_refused() -> None:
    n = native("portable", 1)
    with pytest.raises(ValueError, match="do not fit heads of 8"):
        cpu.rope(n, normal(1, 2, 3, 8), normal(1, 2, 5), normal(1, 2, 5), "halves")
    with pytest.raises(ValueError, match="'spiral'"):
        cpu.rope(n, normal(1, 2, 3, 8), normal(1, 2, 4), normal(1, 2, 4), "spiral")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rope: sin"):
        cpu.rope(n, normal(1, 2, 3, 8), normal(1, 2, 4), normal(1, 1, 4), "pairs")


def test_angles_agree_with_the_math_library_and_with_cpp() -> None:
    positions = torch.cat([torch.arange(0, 3000, 7), 2 ** torch.arange(27) - 1]).to(torch.int32)
    frequencies = 1e7 ** (-torch.arange(20).double() / 20)
    cos, sin = naive.rope_angles(positions, frequencies)
    for found, function in ((cos, math.cos), (sin, math.sin)):
        exact = [[function(p * f) for f in frequencies.tolist()] for p in positions.tolist()]
        # Both are within a fraction of a float64 ulp: their float32 roundings differ once in some hundred million.
        assert torch.equal(found, torch.tensor(exact, dtype=torch.float64).float())
    every_way(lambda n: cpu.rope_angles(n, positions, frequencies), (cos, sin))
    other = cpu.rope_angles(native("portable", 1), positions, frequencies * (1 + 1e-6))
    assert not same_bits(other[0], cos) and not same_bits(other[1], sin)
