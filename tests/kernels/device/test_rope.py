"""rope and rope_angles on the emulator: the specification's bits."""

import pytest
import torch

from kernels.device.device_cases import on_device
from kernels.layer_cases import normal, same_bits
from strata.kernels.host_device import HostDevice
from strata.kernels.ops import RopeLayout
from strata.kernels.rope import gpu, naive

POSITIONS = torch.tensor([0, 1, 37, 4095, 262143, 1048575, 2147483647], dtype=torch.int32)


@pytest.mark.parametrize("layout", ["halves", "pairs"])
@pytest.mark.parametrize(("dim", "half"), [(24, 12), (64, 16), (32, 0), (5, 2)])
def test_rotation(layout: RopeLayout, dim: int, half: int) -> None:
    x = normal(1, 6, 3, dim)
    cos, sin = naive.rope_angles(37 * torch.arange(6), torch.arange(half).double() / 7)
    on_device(lambda d: [gpu.rope(d, x, cos, sin, layout)], [naive.rope(x, cos, sin, layout)])


def test_angles() -> None:
    frequencies = 10000.0 ** (-torch.arange(24).double() / 24)
    expected = naive.rope_angles(POSITIONS, frequencies)
    on_device(lambda d: gpu.rope_angles(d, POSITIONS, frequencies), expected)
    found = gpu.rope_angles(HostDevice(), POSITIONS, frequencies * (1 + 1e-6))
    assert not same_bits(found[0], expected[0]) and not same_bits(found[1], expected[1])


def test_the_layouts_differ() -> None:
    x = normal(1, 6, 3, 64)
    cos, sin = naive.rope_angles(torch.arange(6), torch.arange(16).double() / 7)
    assert not same_bits(gpu.rope(HostDevice(), x, cos, sin, "pairs"), naive.rope(x, cos, sin, "halves"))


def test_wrong_shapes_are_refused() -> None:
    device = HostDevice()
    with pytest.raises(ValueError, match="do not fit heads of 8"):
        gpu.rope(device, normal(1, 2, 3, 8), normal(1, 2, 5), normal(1, 2, 5), "halves")
    with pytest.raises(ValueError, match="rope_angles: frequencies"):
        gpu.rope_angles(device, POSITIONS, torch.ones(4))
