"""Rows that an operation quantises as it makes them: the bytes of a launch of its own, and when they count."""

import gc
from collections.abc import Callable

import numpy as np
import pytest
import torch

from kernels.device.device_cases import ORDERS
from kernels.layer_cases import normal, paged, poisoned, rows_of, same_bits
from kernels.product_data import weight
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.linear import launch
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.ops import Ops
from strata.kernels.views import HeadGate
from strata.quant.formats import FORMATS


def attended(ops: Ops) -> torch.Tensor:
    """Attention of three rows, of which all see two blocks of positions."""
    keys, values = paged(1, [302], 16, (11, 32)), paged(2, [302], 16, (11, 32))
    return ops.attention(normal(3, 3, 33, 32), keys, values, rows_of([(0, 299, 3)]), 0.2)


Make = Callable[[Ops], torch.Tensor]
EVERY = {FORMATS["Q8_0"], FORMATS["Q6_K"]}
"""Formats that read both layouts."""


def gated_rule(ops: Ops) -> torch.Tensor:
    rates, state, rows = normal(2, 3, 33).sigmoid(), torch.zeros(1, 33, 32, 32), rows_of([(0, 0, 3)])
    gate = HeadGate("silu", normal(5, 3, 1056), normal(6, 32), 1e-6)
    return ops.gated_delta_rule(normal(1, 3, 64 + 1056), rates, rates, state, rows, 1, "grouped", 1e-6, gate)


UP = weight("BF16", 4 * 1056, 64, np.random.default_rng(1))

PRODUCERS: dict[str, Make] = {
    "mix": lambda o: o.stream_mix(3 * normal(1, 3, 2 * 1056), normal(7, 3, 2 * 1056), 2),
    "gated rule": gated_rule,
    "low rank": lambda o: o.low_rank_mix(normal(1, 3, 64), UP, normal(7, 3, 4 * 1056), 4),
    "gate": lambda o: o.gate("silu", normal(1, 3, 1056), normal(7, 3, 1056)),
    "heads": lambda o: o.gate_heads("silu", normal(1, 3, 11, 2, 96)[:, :, 1], normal(7, 3, 11, 96)),
    "norm": lambda o: o.rms_norm(normal(7, 3, 1056), normal(2, 1056), 1e-6, 1056),
    "sum's norm": lambda o: o.add_norm(normal(7, 3, 1056), normal(8, 3, 1056), normal(2, 1056), 1e-6)[1],
    "attention": attended,
    "gated norm": lambda o: o.gated_norm("silu", normal(1, 3, 1056), normal(7, 3, 11, 96), normal(2, 96), 1e-6, 96),
    "long gated norm": lambda o: o.gated_norm(
        "exp", normal(1, 3, 1056), normal(7, 3, 1056), normal(2, 1056), 1e-6, 352
    ),
}
"""Rows of 33 and 34 blocks: the second record of a row is not full."""


def anew(x: torch.Tensor) -> launch.Inputs:
    """Quantised by a launch of its own."""
    return launch.quantise(HostDevice(), x.clone(), EVERY)


@pytest.mark.parametrize("name", PRODUCERS)
@pytest.mark.parametrize("order", ORDERS)
def test_an_operation_leaves_what_a_launch_would_give(name: str, order: int) -> None:
    ops = GpuOps(HostDevice(order))
    with poisoned():  # what no sub-block fills is the same in both
        y = PRODUCERS[name](ops)
        before = ops.device.launches
        found, expected = launch.quantise(ops.device, y, EVERY), anew(y)
    assert same_bits(y, PRODUCERS[name](NaiveOps()))
    assert ops.device.launches == before
    for a, b in ((found.by32, expected.by32), (found.by16, expected.by16)):
        assert a is not None and b is not None
        assert torch.equal(a, b)
        a[0, 5] += 1
        assert not torch.equal(a, b)


def test_products_take_it_and_have_the_specifications_bits() -> None:
    ops, naive = GpuOps(HostDevice()), NaiveOps()
    rng = np.random.default_rng(1)
    weights = [weight("Q8_0", 6, 1056, rng), weight("F32", 4, 1056, rng)]
    y = PRODUCERS["gate"](ops)
    expected = naive.linear(PRODUCERS["gate"](naive), weights)
    before = ops.device.launches
    assert all(same_bits(a, b) for a, b in zip(ops.linear(y, weights), expected, strict=True))
    assert ops.device.launches == before + 2
    assert all(same_bits(a, b) for a, b in zip(ops.linear(y.clone(), weights), expected, strict=True))
    assert ops.device.launches == before + 5


def test_what_is_written_to_or_gone_is_quantised_anew() -> None:
    ops = GpuOps(HostDevice())
    y = PRODUCERS["gate"](ops)
    assert ops.device.prepared.find(y) is not None
    assert ops.device.prepared.find(y.view(y.shape)) is None
    y[1, 3] = 5.0
    assert ops.device.prepared.find(y) is None
    kept = len(ops.device.prepared)
    del y
    gc.collect()
    assert kept == 1 and len(ops.device.prepared) == 0


def test_rows_that_no_product_could_take_are_left_alone() -> None:
    ops = GpuOps(HostDevice())
    for rows, cols in ((33, 64), (2, 72)):
        y = ops.gate("silu", normal(1, rows, cols), normal(2, rows, cols))
        assert ops.device.prepared.find(y) is None
    y = ops.gate("silu", normal(1, 2, 4, 64), normal(2, 2, 4, 64))
    assert ops.device.prepared.find(y) is None
