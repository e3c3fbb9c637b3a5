"""The emulator of the device dialect: what threads exchange, and every misuse that it must notice."""

import numpy as np
import pytest
import torch

from kernels.layer_cases import normal, same_bits
from strata.kernels import _simt
from strata.kernels.device import Kernel
from strata.kernels.exact import fma, lane_tree, quantise_rows
from strata.kernels.host_device import HostDevice


def probe(name: str, threads: int, *args: int | float, grid: int = 1, shared: int = 0, order: int = 0) -> None:
    HostDevice(order).launch(Kernel("probe", f"probe_{name}"), (grid, 1, 1), threads, shared, *args)


@pytest.mark.parametrize("order", [0, 7])
def test_shuffles_and_votes(order: int) -> None:
    x, out = normal(1, 64), torch.zeros(3, 64)
    probe("shuffles", 64, x.data_ptr(), out.data_ptr(), 5, 9, order=order)
    lanes = torch.arange(64)
    assert torch.equal(out[0], x[lanes ^ 5])
    assert torch.equal(out[1], x[lanes // 32 * 32 + 9])
    assert (out[2] == 0xAAAA).all()


@pytest.mark.parametrize("order", [0, 7])
def test_a_barrier_lets_threads_read_each_other(order: int) -> None:
    x, out = torch.arange(320, dtype=torch.int32), torch.zeros(320, dtype=torch.int32)
    probe("reverse", 64, x.data_ptr(), out.data_ptr(), grid=5, order=order)
    assert torch.equal(out.view(5, 64), x.view(5, 64).flip(1))


def test_a_missing_barrier_shows() -> None:
    x, out = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    probe("race", 64, x.data_ptr(), out.data_ptr())
    assert (out == -1).any()  # what was not written yet


def test_another_order_of_threads_and_blocks_shows() -> None:
    def tickets(order: int) -> list[int]:
        counters, out = torch.zeros(2, dtype=torch.int32), torch.zeros(192, dtype=torch.int32)
        probe("tickets", 64, counters.data_ptr(), counters[1:].data_ptr(), out.data_ptr(), grid=3, order=order)
        assert counters.tolist() == [192, 63]
        assert sorted(out.tolist()) == list(range(192))
        return out.tolist()

    assert tickets(0) == list(range(192))
    assert tickets(7) != tickets(0)
    assert tickets(7) == tickets(7)


def test_shared_memory_holds_nothing_of_the_block_before() -> None:
    out = torch.zeros(64)
    for _ in range(2):
        probe("unset", 32, out.data_ptr(), shared=128, grid=2)
        assert out.isnan().all()


@pytest.mark.parametrize("order", [0, 7])
def test_a_barrier_that_some_threads_miss_is_an_error(order: int) -> None:
    with pytest.raises(RuntimeError, match=r"probe_half_barrier, block \(0, 0, 0\): thread 0 waits at barrier"):
        probe("half_barrier", 64, 40, order=order)
    with pytest.raises(RuntimeError, match=r"thread 0 waits at barrier \(line \d+\) but thread 40 waits at barrier"):
        probe("two_barriers", 64, 40, order=order)
    probe("two_barriers", 64, 64, order=order)  # all at one of them: fine, and the emulator works after a fault


def test_threads_that_ended_are_not_waited_for() -> None:
    out = torch.zeros(32, dtype=torch.int32)
    probe("ended_then_barrier", 64, out.data_ptr())
    assert out.tolist() == list(range(32))


def test_a_shuffle_with_a_missing_lane_is_an_error() -> None:
    x, out = torch.zeros(64), torch.zeros(64)
    with pytest.raises(RuntimeError, match=r"thread 0 waits at shuffle_xor .* but thread 5 has ended"):
        probe("missing_lane", 32, out.data_ptr())
    with pytest.raises(RuntimeError, match="needs 32 lanes; its group has 20"):
        probe("shuffles", 20, x.data_ptr(), out.data_ptr(), 1, 1)


def test_too_much_static_shared_memory_is_an_error() -> None:
    out = torch.zeros(1)
    with pytest.raises(RuntimeError, match="65536 bytes of static shared arrays; a GPU has 49152"):
        probe("too_much_shared", 32, out.data_ptr())


@pytest.mark.parametrize("order", [0, 3, 4])
def test_a_spinning_thread_lets_others_run(order: int) -> None:
    word, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    probe("spin", 2, word.data_ptr(), out.data_ptr(), order=order)
    assert out.item() == 7


def test_what_no_kernel_takes_is_refused() -> None:
    x = torch.zeros(64)
    with pytest.raises(KeyError, match="no kernel probe_nothing in unit probe"):
        probe("nothing", 32)
    with pytest.raises(TypeError, match="probe_reverse takes 2 arguments, found 1"):
        probe("reverse", 64, x.data_ptr())
    with pytest.raises(TypeError, match="argument 0 must be an int"):
        probe("half_barrier", 64, 1.0)
    with pytest.raises(ValueError, match="blocks of 32 threads, made for 64"):
        probe("reverse", 32, x.data_ptr(), x.data_ptr())
    with pytest.raises(ValueError, match="blocks of 1025 threads"):
        probe("half_barrier", 1025, 1)
    with pytest.raises(ValueError, match=r"a grid of \(0, 1, 1\) blocks"):
        probe("half_barrier", 64, 1, grid=0)
    with pytest.raises(ValueError, match="bytes of shared memory"):
        probe("half_barrier", 64, 1, shared=1 << 20)


def test_integer_dots_and_the_fused_operation() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 128, (32, 4), dtype=np.int8) for _ in range(2))
    x, dots, sums = normal(4, 32), torch.zeros(32, dtype=torch.int32), torch.zeros(32)
    probe("arithmetic", 32, a.ctypes.data, b.ctypes.data, dots.data_ptr(), x.data_ptr(), sums.data_ptr())
    assert dots.tolist() == [int(p.astype(int) @ q.astype(int)) + 3 for p, q in zip(a, b, strict=True)]
    assert same_bits(sums, torch.from_numpy(fma(x.numpy(), x.numpy(), np.float32(-1))))
    assert not same_bits(sums, x * x - 1)


def test_halves_codes_and_the_lane_tree() -> None:
    rng = np.random.default_rng(5)
    halves, x = rng.integers(0, 1 << 16, 32, dtype=np.uint16), normal(6, 32)
    floats, codes, scale, total = (
        torch.zeros(32),
        torch.zeros(32, dtype=torch.int32),
        torch.zeros(32),
        torch.zeros(32),
    )
    probe("numbers", 32, halves.ctypes.data, *(t.data_ptr() for t in (floats, x, codes, scale, total)))
    assert same_bits(floats, torch.from_numpy(halves.view(np.float16).astype(np.float32)))
    expected = quantise_rows(x.numpy()[None])
    assert codes.tolist() == expected.q[0].tolist()
    assert (scale == float(expected.d[0, 0])).all()
    assert (total == float(lane_tree(x.numpy()))).all()


def test_kernels_are_listed() -> None:
    assert ("probe", "probe_reverse") in _simt.kernels()
    assert len(set(_simt.kernels())) == len(_simt.kernels())
