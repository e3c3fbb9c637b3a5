"""embed on the emulator: the specification's bits, for every format."""

import numpy as np
import pytest
import torch

from kernels.device.device_cases import on_device
from kernels.layer_cases import same_bits
from kernels.product_cases import weight
from strata.kernels.embed import gpu, naive
from strata.kernels.host_device import HostDevice
from strata.kernels.native import FORMAT_CODES
from strata.kernels.views import Weight

IDS = torch.tensor([0, 6, 4, 4, 1], dtype=torch.int64)


def shards(name: str, scale: float = 1.0) -> list[Weight]:
    """A table of 7 rows in two shards."""
    rng = np.random.default_rng(len(name))
    return [weight(name, 4, 512, rng, scale), weight(name, 3, 512, rng, scale)]


@pytest.mark.parametrize("name", FORMAT_CODES)
def test_every_format(name: str) -> None:
    table = shards(name)
    on_device(lambda d: [gpu.embed(d, IDS, table)], [naive.embed(IDS, table)])


@pytest.mark.parametrize("name", ["Q4_K", "NVFP4_PAIRS", "F32"])
def test_a_factor_is_one_more_rounding(name: str) -> None:
    table = shards(name, 0.3)
    on_device(lambda d: [gpu.embed(d, IDS, table)], [naive.embed(IDS, table)])


def test_another_row_shows() -> None:
    table = shards("Q6_K")
    found = gpu.embed(HostDevice(), IDS, table)
    other = gpu.embed(HostDevice(), torch.tensor([0, 6, 4, 5, 1]), table)
    assert [same_bits(a, b) for a, b in zip(found, other, strict=True)] == [True, True, True, False, True]


def test_what_does_not_fit_is_refused() -> None:
    device, rng = HostDevice(), np.random.default_rng(1)
    with pytest.raises(ValueError, match="embed: ids"):
        gpu.embed(device, IDS.to(torch.int32), shards("Q8_0"))
    with pytest.raises(ValueError, match="2 shards"):
        gpu.embed(device, IDS, [weight("Q8_0", 4, 512, rng), weight("Q8_0", 3, 256, rng)])
