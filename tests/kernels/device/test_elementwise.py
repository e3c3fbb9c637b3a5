"""Elementwise arithmetic and activations on the emulator: the specification's bits."""

import pytest
import torch

from kernels.device.device_cases import on_device
from kernels.layer_cases import normal, same_bits
from strata.kernels.activate import gpu as activate_gpu
from strata.kernels.activate import naive as activate_naive
from strata.kernels.elementwise import gpu, naive
from strata.kernels.host_device import HostDevice
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.ops import Activation

SPECIAL = torch.tensor([[0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, -3e38, 1e-6, 88.8, -103.9]])
SHAPES = [(1, 5), (3, 257), (2, 3, 100)]


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_quotients_and_products(shape: tuple[int, ...]) -> None:
    for x, y in ((normal(1, *shape), normal(2, *shape)), (SPECIAL, SPECIAL.flip(1))):
        on_device(lambda d, x=x, y=y: [gpu.add(d, x, y)], [naive.add(x, y)])
        on_device(lambda d, x=x: [gpu.divide(d, x, 3)], [naive.divide(x, 3)])
        on_device(lambda d, x=x: [gpu.multiply(d, x, 0.1)], [naive.multiply(x, 0.1)])
        on_device(lambda d, x=x: [gpu.signed_root(d, x, 1e-6)], [naive.signed_root(x, 1e-6)])


@pytest.mark.parametrize("kind", activate_gpu.KINDS)
def test_activations_and_gates(kind: Activation) -> None:
    for g, x in ((30 * normal(1, 5, 70), normal(2, 5, 70)), (SPECIAL, SPECIAL.flip(1))):
        on_device(lambda d, g=g: [activate_gpu.activate(d, kind, g)], [activate_naive.activate(kind, g)])
        both = activate_naive.activate(kind, g, 3.0, 0.3)
        on_device(lambda d, g=g: [activate_gpu.activate(d, kind, g, 3, 0.3)], [both])
        on_device(lambda d, g=g, x=x: [gpu.gate(d, kind, g, x)], [naive.gate(kind, g, x)])


@pytest.mark.parametrize(("rows", "heads", "dim"), [(1, 4, 32), (3, 2, 48), (2, 3, 5)])
def test_gates_of_heads_are_read_where_they_lie(rows: int, heads: int, dim: int) -> None:
    both, x = normal(1, rows, heads, 2, dim), normal(2, rows, heads, dim)
    g, other = both[:, :, 1], both[:, :, 0]
    expected = NaiveOps().gate_heads("sigmoid", g, x)
    on_device(lambda d: [gpu.gate_heads(d, "sigmoid", g, x)], [expected])
    device = HostDevice()
    assert not same_bits(gpu.gate_heads(device, "sigmoid", other, x), expected)
    assert device.launches == 1
    with pytest.raises(ValueError, match="gate_heads: gates"):
        gpu.gate_heads(device, "sigmoid", normal(3, rows, dim, heads).transpose(1, 2), x)


@pytest.mark.parametrize(("rows", "heads"), [(1, 4), (3, 32), (20, 16)])
def test_rates_of_the_delta_rule(rows: int, heads: int) -> None:
    b, a, rate, bias = 3 * normal(1, rows, heads), 3 * normal(2, rows, heads), -normal(3, heads).abs(), normal(4, heads)
    on_device(lambda d: gpu.delta_rates(d, b, a, rate, bias), naive.delta_rates(b, a, rate, bias))


@pytest.mark.parametrize(("rows", "streams", "hidden"), [(1, 1, 5), (3, 4, 24)])
def test_a_row_is_spread_over_its_streams(rows: int, streams: int, hidden: int) -> None:
    weights, x = normal(1, rows, streams), normal(2, rows, hidden)
    on_device(lambda d: [gpu.spread(d, weights, x)], [naive.spread(weights, x)])


def test_a_product_is_no_quotient() -> None:
    x, device = normal(1, 3, 257), HostDevice()
    assert not same_bits(gpu.multiply(device, x, 1 / 3), naive.divide(x, 3))


def test_shapes_that_do_not_fit_are_refused() -> None:
    device, x, y = HostDevice(), normal(1, 2, 8), normal(2, 2, 9)
    with pytest.raises(ValueError, match=r"add: y: expected contiguous torch\.float32"):
        gpu.add(device, x, y)
    with pytest.raises(ValueError, match="gate: g"):
        gpu.gate(device, "silu", x, y)
    with pytest.raises(ValueError, match="spread: x"):
        gpu.spread(device, normal(1, 3, 2), x)
    with pytest.raises(ValueError, match="not contiguous"):
        activate_gpu.activate(device, "exp", x.T)
