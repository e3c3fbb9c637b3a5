"""Products with several rows of x in rounds on matrix units equal their specification bit for bit, on the emulator."""

import numpy as np
import pytest
import torch

from kernels.product_cases import activations, differing, weight
from strata.kernels.host_device import HostDevice
from strata.kernels.linear import gpu, launch, naive, rounds
from strata.kernels.shared_memory import SharedMemory
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS


@pytest.mark.parametrize("name", rounds.FROM_ROWS)
def test_rounds_equal_the_specification(name: str) -> None:
    """Two rounds of a block, a last unit with few rows, steps that are not full, groups of rows of x."""
    rng, device = np.random.default_rng(len(name)), HostDevice(order=3)
    for cols, count in ((768, 5), (1280, 9), (256, 19)):
        ws, x = [weight(name, rows, cols, rng) for rows in (8 * 9 + 3, 1)], activations(count, cols, rng)
        assert rounds.size_for(device, ws[0].format, cols, count) == (2 if count > 8 else 1)
        for found, expected in zip(gpu.linear(device, x, ws), naive.linear(x, ws), strict=True):
            assert differing(found, expected) == 0, (cols, count)


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K"])
def test_rows_that_come_in_pieces(name: str) -> None:
    """Slots that hold a step, of which there are fewer than a block's rounds take."""
    rng, (cols, count) = np.random.default_rng(5), (2560, 5)
    w, x = weight(name, 8 * 8, cols, rng), activations(count, cols, rng)
    fixed = rounds.fixed_bytes(w.format, cols, 1) + rounds.STATIC + rounds.OVER_READ
    step = rounds.LINES * rounds.TEAMS * (launch.step_bytes(w.format) + 64)
    device = HostDevice(shared=SharedMemory(fixed + 2 * step + 1024))
    ring = rounds.ring(device, w.format, cols, 1, 1)
    assert ring is not None and (ring.slots, ring.steps) == (2, 1)
    assert differing(gpu.linear(device, x, [w])[0], naive.linear(x, [w])[0]) == 0


def test_other_lanes_give_other_bits() -> None:
    """Control: the same terms in other lanes differ in many results, so the comparisons above can fail."""
    rng = np.random.default_rng(8)
    w, x = weight("Q4_K", 64, 2048, rng), activations(5, 2048, rng)
    order = np.array([2, 0, 3, 1, 5, 7, 4, 6])  # of blocks of 256, each eight lanes
    moved = np.ascontiguousarray(w.planes[0].numpy().reshape(64, 8, 144)[:, order]).reshape(64, -1)
    shuffled = Weight(w.format, 64, 2048, (torch.from_numpy(moved),))
    y = gpu.linear(HostDevice(), x, [w])[0]
    z = gpu.linear(HostDevice(), x.reshape(5, 8, 256)[:, order].reshape(5, -1).contiguous(), [shuffled])[0]
    assert torch.allclose(y, z, rtol=1e-3, atol=1e-2 * float(y.abs().max()))
    assert differing(y, z) > 80


def test_sizes_fit_a_processor_and_rows_that_do_not_take_the_other_kernels() -> None:
    device = HostDevice()
    for fmt in (FORMATS[name] for name in rounds.FROM_ROWS):
        for cols in (256, 2560, 6144, 12288, 32768):
            size = rounds.size_for(device, fmt, cols, 32)
            if size:
                shape, ring = rounds.shape(device, fmt, cols, [10_000], size)
                assert shape.shared >= device.shared.alone and shape.shared + rounds.STATIC <= 227 << 10
                assert ring.slots * ring.steps >= 1 and shape.blocks == device.processors
    assert (
        rounds.size_for(device, FORMATS["Q4_K"], 65536, 8) == 0
        and rounds.size_for(device, FORMATS["BF16"], 2560, 8) == 0
    )
    wide = [rounds.size_for(device, FORMATS["Q4_K"], 2560, rows) for rows in (1, 4, 5, 8, 9, 16, 17)]
    assert wide == [0, 0, 1, 1, 2, 2, 2] and rounds.size_for(device, FORMATS["Q6_K"], 2560, 3) == 1
