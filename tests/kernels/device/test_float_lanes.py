"""Products with long rows of plain floats on the emulator: the specification's bits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.device.device_cases import on_device
from kernels.layer_cases import normal, same_bits
from kernels.product_cases import weight
from strata.kernels.host_device import HostDevice
from strata.kernels.linear import gpu, lanes, naive
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS


def matrices(fmt: str, cols: int, *rows: int) -> list[Weight]:
    rng = np.random.default_rng(cols)
    return [replace(weight(fmt, n, cols, rng), scale=0.5 + n) for n in rows]


@pytest.mark.parametrize(
    ("fmt", "cols", "lines", "rows"),
    [
        ("BF16", 256, (3,), 1),
        ("BF16", 1280, (1, 4, 2), 3),
        ("F16", 768, (2, 1), 2),
        ("F32", 384, (5,), 1),
        ("F32", 128, (1,), 5),
        ("BF16", 768, (2,), 4),
        ("F32", 640, (3,), 7),
    ],
)
def test_bits(fmt: str, cols: int, lines: tuple[int, ...], rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "FROM_COLS", 0)
    x, ws = normal(1, rows, cols), matrices(fmt, cols, *lines)
    assert lanes.takes(HostDevice(), x, ws)
    on_device(lambda d: gpu.linear(d, x, ws), naive.linear(x, ws))
    turned = gpu.linear(HostDevice(), x.flip(1).contiguous(), ws)
    assert not any(same_bits(a, b) for a, b in zip(turned, naive.linear(x, ws), strict=True))


def test_what_is_left_to_other_kernels() -> None:
    device, x = HostDevice(), normal(1, 2, 2048)
    taken, short = matrices("BF16", 2048, 1), matrices("BF16", 1792, 1)
    assert lanes.takes(device, x, taken)
    assert not lanes.takes(device, normal(1, 2, 1792), short)
    assert not lanes.takes(device, normal(1, 1, 2080), matrices("BF16", 2080, 1)), "lanes of no whole 16 bytes"
    assert not lanes.takes(device, x, matrices("Q8_0", 2048, 1))
    assert not lanes.takes(device, x, matrices("BF16", 2048, 2 * lanes.MOST_ROWS, 1))
    assert not lanes.takes(device, torch.zeros(2 * 2048 + 1)[1:].view(2, 2048), taken), "no whole lines of 16 bytes"


@pytest.mark.parametrize(("name", "cols", "lines", "blocks"), [("BF16", 10240, 324, 108), ("F32", 2560, 513, 129)])
def test_a_block_has_some_whole_rows(name: str, cols: int, lines: int, blocks: int) -> None:
    device = HostDevice()
    device.processors = 132
    for rows, size in ((1, 1), (2, 2), (3, 4), (9, 4)):
        found, together = lanes.shape(device, FORMATS[name], cols, lines, rows)
        assert found.blocks == blocks and together == size
        assert found.shared <= device.shared.most - lanes.STATIC
    assert lanes.size_for(device, FORMATS["F32"], 10240, 2, 4) == 2, "four rows of x leave no room for two of weights"
    assert lanes.lane_bytes(320, 8) == (32 * 41 + 4 * 2) * 16
    assert lanes.lane_bytes(80, 4) == (32 * 26 + 8) * 16
