"""The products on a device equal their specification bit for bit: every format, on the emulator."""

import numpy as np
import pytest
import torch

from kernels.product_cases import activations, differing, weight
from strata.kernels.host_device import HostDevice
from strata.kernels.linear import gpu, launch, matrices, naive
from strata.kernels.native import FORMAT_CODES
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS


@pytest.mark.parametrize("name", FORMAT_CODES)
def test_every_format_at_awkward_sizes(name: str) -> None:
    rng = np.random.default_rng(FORMAT_CODES[name])
    device = HostDevice(order=7)
    for cols, count in ((32, 1), (160, 3), (256, 2), (768, 11), (1280, 1), (2304, 5)):
        if cols % FORMATS[name].block == 0:
            w, x = weight(name, int(rng.integers(1, 20)), cols, rng), activations(count, cols, rng)
            (got,) = gpu.linear(device, x, [w])
            assert differing(got, naive.linear(x, [w])[0]) == 0, (cols, w.rows, count)


@pytest.mark.parametrize("name", ["F32", "BF16", "FP8"])
@pytest.mark.parametrize("cols", [1, 7, 31, 33, 100, 129])
def test_plain_floats_take_rows_of_any_length(name: str, cols: int) -> None:
    rng = np.random.default_rng(cols)
    w = weight(name, 5, cols, rng)
    x = torch.from_numpy(rng.standard_normal((3, cols)).astype(np.float32) * np.float32(1e-22))
    w.planes[0][0].zero_()
    assert differing(gpu.linear(HostDevice(), x, [w])[0], naive.linear(x, [w])[0]) == 0


def test_company_order_and_formats_change_nothing() -> None:
    rng = np.random.default_rng(3)
    ws = [weight(name, rows, 768, rng) for name, rows in (("Q4_K", 30), ("Q6_K", 19), ("BF16", 33), ("Q4_K", 1))]
    x = activations(35, 768, rng)
    whole = naive.linear(x, ws)
    for count, order in ((1, 0), (2, 1), (8, 2), (9, 3), (35, 4)):
        for part, full in zip(gpu.linear(HostDevice(order), x[:count], ws), whole, strict=True):
            assert differing(part, full[:count]) == 0


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K", "Q6_K", "F32"])
def test_values_that_are_not_finite_show_in_their_row_only(name: str) -> None:
    rng = np.random.default_rng(5)
    w, x = weight(name, 9, 768, rng), activations(6, 768, rng)
    x[1, 700], x[3, 5], x[4, 40] = float("nan"), float("inf"), float("-inf")
    (got,) = gpu.linear(HostDevice(), x, [w])
    assert differing(got, naive.linear(x, [w])[0]) == 0
    assert not got[1].isfinite().any()
    assert got[[0, 2, 5]].isfinite().all()


def test_extreme_activations_and_the_factor_of_a_matrix() -> None:
    rng = np.random.default_rng(6)
    rows = [np.zeros(256), np.full(256, 3e38), np.full(256, 1e-45), rng.standard_normal(256) * 1e-43]
    rows.append(np.arange(256) - 128 + 0.5)  # halves: rounding to even shows
    x = torch.from_numpy(np.stack(rows).astype(np.float32))
    for name, scale in (("Q5_K", 1.0), ("NVFP4", 0.0371), ("FP8", 0.0371)):
        w = weight(name, 9, 256, rng, scale)
        assert differing(gpu.linear(HostDevice(), x, [w])[0], naive.linear(x, [w])[0]) == 0


def test_another_order_of_lanes_differs() -> None:
    """Control: the same terms in other lanes give other bits, so the comparisons above can fail."""
    rng = np.random.default_rng(8)
    w, x = weight("Q8_0", 32, 2048, rng), activations(2, 2048, rng)
    order = np.arange(64).reshape(2, 32)[:, rng.permutation(32)].ravel()
    moved = np.ascontiguousarray(w.planes[0].numpy().reshape(32, 64, 34)[:, order]).reshape(32, -1)
    shuffled = Weight(w.format, 32, 2048, (torch.from_numpy(moved),))
    y = gpu.linear(HostDevice(), x, [w])[0]
    z = gpu.linear(HostDevice(), x.reshape(2, 64, 32)[:, order].reshape(2, -1).contiguous(), [shuffled])[0]
    assert torch.allclose(y, z, rtol=1e-3, atol=1e-2 * float(y.abs().max()))
    assert differing(y, z) > 20


def test_what_does_not_fit_is_refused() -> None:
    rng, device = np.random.default_rng(14), HostDevice()
    w, x = weight("Q4_K", 8, 256, rng), activations(2, 256, rng)
    with pytest.raises(ValueError, match="rows of 128 values for a weight of 256 columns"):
        gpu.linear(device, x[:, :128].contiguous(), [w])
    with pytest.raises(ValueError, match=r"linear: x: expected contiguous torch.float32 \(2, 256\) on cpu, found "):
        gpu.linear(device, x.double(), [w])


def test_no_launch_asks_for_more_shared_memory_than_a_block_may_have() -> None:
    """The emulator stops a kernel that goes beyond what it asked for."""
    device = HostDevice()
    for name in FORMAT_CODES:
        fmt = FORMATS[name]
        for cols in (fmt.block, 10240, 20480):
            for streams, size in ((1, 0), (2, 0), *((1, size) for size in launch.BUCKETS)):
                shape = launch.shape(device, fmt, cols, 10_000, 1, streams, size)
                assert 2 * (shape.shared + 1024) > 228 << 10, "two blocks on one processor"
                assert shape.shared <= 227 << 10
                assert 0 < shape.threads <= 32 * launch.MOST_GROUPS
                assert shape.blocks in {device.processors, device.processors // launch.FLOAT_SHARE}


def test_long_rows_of_plain_floats_with_little_to_do_take_fewer_processors() -> None:
    device = HostDevice()
    device.processors = 132
    fmt = FORMATS["F32"]
    found = [launch.shape(device, fmt, 2560, rows, 1, size=1).blocks for rows in (96, 513, 2000)]
    assert found == [33, 65, 132]
    assert [launch.shape(device, fmt, 2560, 513, 1, size=size).blocks for size in (2, 4)] == [66, 132]


def test_more_matrices_than_a_launch_takes_and_rows_of_x_too_long_for_many_groups() -> None:
    rng, device = np.random.default_rng(23), HostDevice(order=2)
    ws = [weight("Q8_0", 1 + i % 3, 256, rng) for i in range(matrices.MOST_MATRICES + 3)]
    x = activations(2, 256, rng)
    for found, expected in zip(gpu.linear(device, x, ws), naive.linear(x, ws), strict=True):
        assert differing(found, expected) == 0
    fmt = FORMATS["Q6_K"]
    assert launch.shape(device, fmt, 2560, 10_000, 1, size=2).threads == 32 * launch.MOST_GROUPS
    long = launch.shape(device, fmt, 32768, 10_000, 1, size=2)
    assert long.threads < 32 * launch.MOST_GROUPS and long.shared <= device.shared.dynamic


def test_a_launch_has_groups_for_its_units() -> None:
    device, fmt = HostDevice(), FORMATS["IQ4_NL"]
    assert launch.shape(device, fmt, 2560, 2, 1) == launch.Shape(1, 4 * 32, device.shared.alone, 2)
    large, most = FORMATS["IQ3_S"], launch.MOST_GROUPS
    full = launch.Shape(2, 32 * most, launch.table_bytes(device, large) + most * launch.ring_bytes(large, 1), 2)
    assert launch.shape(device, large, 2560, 4 * most, 1) == full
    assert launch.shape(device, fmt, 2560, 2 * 2 * 17, 1).threads == 9 * 32  # two rounds of nine, not sixteen and one
    assert [launch.shape(device, FORMATS["Q6_K"], 2560, rows, 1).lines for rows in (127, 128)] == [2, 4]


def test_many_rows_whose_lanes_unpack_several_sub_blocks() -> None:
    rng, device = np.random.default_rng(19), HostDevice(order=4)
    for cols in (256, 768, 1280):  # of a step of lanes: a part, one and a part, two and a part
        w, x = weight("Q6_K", 131, cols, rng, scale=0.3), activations(11, cols, rng)
        for count in (1, 2, 3, 11):
            assert differing(gpu.linear(device, x[:count], [w])[0], naive.linear(x[:count], [w])[0]) == 0, (cols, count)


def test_many_rows_of_plain_floats_come_to_a_group_together() -> None:
    rng, device = np.random.default_rng(17), HostDevice(order=5)
    w, x = weight("BF16", 70, 320, rng), activations(9, 320, rng)
    assert launch.shape(device, w.format, 320, 70, 1, size=1).lines == 4
    for count in (1, 2, 3, 9):
        assert differing(gpu.linear(device, x[:count], [w])[0], naive.linear(x[:count], [w])[0]) == 0


def test_a_row_of_plain_floats_that_comes_in_pieces() -> None:
    rng, device = np.random.default_rng(18), HostDevice(order=6)
    for name, cols in (("BF16", 5120 * 2 + 33), ("F32", 2561)):
        w, x = weight(name, 3, cols, rng), activations(3, cols, rng)
        for count in (1, 3):  # so many rows of x do not fit into shared memory beside them, in one of the cases
            assert differing(gpu.linear(device, x[:count], [w])[0], naive.linear(x[:count], [w])[0]) == 0


def test_rows_shorter_than_a_step_of_lanes() -> None:
    """Lanes that never leave the first of a unit's two rows."""
    rng = np.random.default_rng(15)
    for name, cols in (("Q8_0", 32), ("Q8_0", 96), ("IQ3_S", 256), ("Q6_K", 256), ("Q4_0", 992), ("Q4_0", 1024)):
        w, x = weight(name, 5, cols, rng), activations(2, cols, rng)
        assert differing(gpu.linear(HostDevice(order=2), x, [w])[0], naive.linear(x, [w])[0]) == 0


def test_values_move_lanes_with_their_row() -> None:
    """Control: the second of two rows that share a step is not the first one's sum."""
    rng = np.random.default_rng(16)
    w, x = weight("Q4_0", 2, 2560, rng), activations(1, 2560, rng)
    (got,) = gpu.linear(HostDevice(), x, [w])
    swapped = Weight(w.format, 2, 2560, (w.planes[0].flip(0).contiguous(),))
    (turned,) = gpu.linear(HostDevice(), x, [swapped])
    assert differing(turned.flip(1).contiguous(), got) == 0
    assert differing(turned, got) == 2
