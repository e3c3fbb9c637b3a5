"""Products with several rows of x on matrix units equal their specification bit for bit, on the emulator."""

import numpy as np
import pytest
import torch

from kernels.product_cases import activations, differing, weight
from strata.kernels.host_device import HostDevice
from strata.kernels.linear import gpu, naive, tiles
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS


@pytest.mark.parametrize("name", tiles.TABLE_WORDS)
def test_tiles_equal_the_specification(name: str) -> None:
    """More tiles than blocks, a last one with few rows, steps that are not full, groups of rows of x."""
    rng, device = np.random.default_rng(len(name)), HostDevice(order=3)
    for cols, count in ((768, 5), (1280, 9), (256, 19)):
        ws, x = [weight(name, rows, cols, rng) for rows in (16 * 5 + 3, 1)], activations(count, cols, rng)
        assert tiles.size_for(HostDevice(), ws[0].format, cols, count) == (2 if count > 8 else 1)
        for found, expected in zip(gpu.linear(device, x, ws), naive.linear(x, ws), strict=True):
            assert differing(found, expected) == 0, (cols, count)


@pytest.mark.parametrize("name", ["Q8_0", "IQ4_NL", "Q4_K", "Q6_K"])  # the latter two in rounds
def test_columns_that_are_no_number_shows_in_its_row_only(name: str) -> None:
    rng = np.random.default_rng(5)
    w, x = weight(name, 33, 512, rng), activations(6, 512, rng)
    x[1, 500], x[3, 5] = float("nan"), float("inf")
    (got,) = gpu.linear(HostDevice(), x, [w])
    assert differing(got, naive.linear(x, [w])[0]) == 0
    assert not got[1].isfinite().any() and got[[0, 2, 4, 5]].isfinite().all()


def test_other_lanes_give_other_bits() -> None:
    """Control: the same terms in other lanes differ in many results, so the comparisons above can fail."""
    rng = np.random.default_rng(8)
    w, x = weight("Q8_0", 64, 2048, rng), activations(5, 2048, rng)
    order = np.arange(64).reshape(2, 32)[:, rng.permutation(32)].ravel()
    moved = np.ascontiguousarray(w.planes[0].numpy().reshape(64, 64, 34)[:, order]).reshape(64, -1)
    shuffled = Weight(w.format, 64, 2048, (torch.from_numpy(moved),))
    y = gpu.linear(HostDevice(), x, [w])[0]
    z = gpu.linear(HostDevice(), x.reshape(5, 64, 32)[:, order].reshape(5, -1).contiguous(), [shuffled])[0]
    assert torch.allclose(y, z, rtol=1e-3, atol=1e-2 * float(y.abs().max()))
    assert differing(y, z) > 80


def test_sizes_fit_a_processor_and_rows_that_do_not_take_the_other_kernels() -> None:
    device = HostDevice()
    for fmt in (FORMATS[name] for name in tiles.TABLE_WORDS):
        for cols in (256, 2560, 6144, 12288, 32768):
            size = tiles.size_for(device, fmt, cols, 32)
            shape = tiles.shape(device, fmt, cols, [10_000], max(size, 1))
            assert size == 0 or shape.shared <= device.shared.dynamic
            assert shape.blocks == device.processors * (2 if 2 * (shape.shared + 1024) <= 228 << 10 else 1)
            assert size == 0 or (shape.blocks // device.processors + 1) * (shape.shared + 1024) > 228 << 10
    assert (
        tiles.size_for(device, FORMATS["Q8_0"], 32768, 8) == 0 and tiles.size_for(device, FORMATS["BF16"], 2560, 8) == 0
    )
    assert [tiles.size_for(device, FORMATS["Q8_0"], 2560, rows) for rows in (1, 4, 5, 8, 9, 16, 17)] == [
        0,
        0,
        1,
        1,
        2,
        2,
        2,
    ]
