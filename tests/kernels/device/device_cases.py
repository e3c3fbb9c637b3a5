"""Shared by the tests of device kernels: the emulator in two orders of threads, over poisoned memory."""

from collections.abc import Callable, Sequence

import torch

from kernels.layer_cases import bits, poisoned, same_bits
from strata.kernels.host_device import HostDevice

ORDERS = (0, 12345)
"""Natural, and one in which blocks, groups and lanes are mixed; a result may show neither."""


def on_device(run: Callable[[HostDevice], Sequence[torch.Tensor]], expected: Sequence[torch.Tensor]) -> None:
    """run(device) gives the expected bits (and types) in every order, over uninitialised memory that holds NaN."""
    for order in ORDERS:
        with poisoned():
            found = run(HostDevice(order))
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            same = same_bits(a, b) if a.is_floating_point() else torch.equal(a, b)
            assert same, f"order {order}: {(bits(a) != bits(b)).sum()} values differ"
