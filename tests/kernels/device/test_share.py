"""Products of one and two rows of x whose units arrive whole equal their specification bit for bit, on the emulator."""

import numpy as np
import pytest
import torch

from kernels.product_cases import activations, differing, weight
from strata.kernels.host_device import HostDevice
from strata.kernels.linear import gpu, launch, naive, share
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS


@pytest.mark.parametrize("name", share.LINES)
@pytest.mark.parametrize(("cols", "rows", "groups", "slots"), [(256, 9, 2, 1), (768, 93, 3, 2), (1280, 70, 2, 3)])
def test_units_of_all_shapes_equal_the_specification(
    monkeypatch: pytest.MonkeyPatch, name: str, cols: int, rows: int, groups: int, slots: int
) -> None:
    """Steps that are not full, a last unit with few rows or alone, slots that are filled again, two matrices."""
    rng, fmt, device = np.random.default_rng(rows), FORMATS[name], HostDevice(order=slots)
    ws, x = [weight(name, n, cols, rng, 0.3) for n in (rows, 5)], activations(2, cols, rng)
    shared = 2 * launch.record_bytes(cols, fmt.sub) + groups * slots * share.room(fmt, cols)
    forced = launch.Shape(device.processors, 32 * groups, shared, share.LINES[name]), slots
    monkeypatch.setattr(share, "shape", lambda *_: forced)
    for count in (1, 2):
        for found, expected in zip(gpu.linear(device, x[:count], ws), naive.linear(x[:count], ws), strict=True):
            assert differing(found, expected) == 0, count


def test_other_lanes_give_other_bits() -> None:
    """Control: the same terms in other lanes differ in many results, so the comparison above can fail."""
    rng = np.random.default_rng(8)
    w, x = weight("Q6_K", 64, 2048, rng), activations(1, 2048, rng)
    order = np.array([2, 0, 3, 1, 5, 7, 4, 6])  # of blocks of 256, each sixteen lanes
    moved = np.ascontiguousarray(w.planes[0].numpy().reshape(64, 8, 210)[:, order]).reshape(64, -1)
    shuffled = Weight(w.format, 64, 2048, (torch.from_numpy(moved),))
    y = gpu.linear(HostDevice(), x, [w])[0]
    z = gpu.linear(HostDevice(), x.reshape(8, 256)[order].reshape(1, -1).contiguous(), [shuffled])[0]
    assert torch.allclose(y, z, rtol=1e-3, atol=1e-2 * float(y.abs().max()))
    assert differing(y, z) > 16


def test_shapes_fit_a_processor() -> None:
    device = HostDevice()
    device.processors = 132
    for fmt in (FORMATS[name] for name in share.LINES):
        for cols in (256, 2560, 6144, 12288, 32768):
            for rows in (1, 1280, 2560, 16384, 248320):
                for size in (1, 2):
                    found = share.shape(device, fmt, cols, rows, size)
                    if found is None:
                        continue
                    shape, slots = found
                    assert shape.shared + share.STATIC <= 227 << 10 and shape.shared >= device.shared.alone
                    assert shape.threads * slots <= 32 * share.MOST_PLACES
                    ring = shape.threads // 32 * slots * share.room(fmt, cols)
                    assert size * launch.record_bytes(cols, fmt.sub) + ring <= shape.shared
    assert share.shape(device, FORMATS["Q4_K"], 2560, 5120, 4) is None  # other kernels
    assert share.shape(device, FORMATS["Q8_0"], 2560, 5120, 1) is None
    by_cols = {cols: share.shape(device, FORMATS["Q6_K"], cols, 248320, 1) for cols in (2560, 4096, 12288)}
    groups = {cols: known and (known[0].threads // 32, known[1]) for cols, known in by_cols.items()}
    assert groups == {2560: (10, 2), 4096: (12, 1), 12288: None}
