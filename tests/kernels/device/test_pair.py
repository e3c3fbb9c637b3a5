"""Codes and plain floats of one launch equal their specification and two launches bit for bit, on the emulator."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from kernels.device.device_cases import ORDERS, on_device
from kernels.layer_cases import normal, poisoned
from kernels.product_cases import activations, differing, weight
from strata.kernels.host_device import HostDevice
from strata.kernels.host_program import HostProgram
from strata.kernels.linear import gpu, lanes, launch, naive, pair, share
from strata.kernels.shared_memory import HOST, SharedMemory, shared_memory
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS

PAIRS = [(codes, floats) for codes in share.LINES for floats in lanes.FORMATS]


def matrices(seed: int, cols: int, *parts: tuple[str, int]) -> list[Weight]:
    """Of so many rows in some formats."""
    rng = np.random.default_rng(seed)
    return [replace(weight(name, rows, cols, rng, 0.3), scale=0.5 + rows) for name, rows in parts]


def device_of(processors: int, shared: SharedMemory = HOST, order: int = 0) -> HostDevice:
    device = HostDevice(order, shared)
    device.processors = processors
    return device


def kernels(device: HostDevice, x: torch.Tensor, weights: Sequence[Weight]) -> list[str]:
    """What is launched, but for x's quantising."""
    program = HostProgram(device)
    with program.recording():
        gpu.linear(device, x, weights)
    return [launch.kernel.name for launch in program.recorded if launch.kernel.name != "quantise_rows"]


def of(device: HostDevice, rows: int, cols: int, codes: Sequence[Weight], floats: Sequence[Weight]) -> pair.Pair | None:
    return pair.pair(device, torch.zeros(rows, cols), codes, floats)


@pytest.mark.parametrize(("codes", "floats"), PAIRS)
def test_bits(codes: str, floats: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of both formats in turns, last units with few rows, groups of lanes without units."""
    monkeypatch.setattr(lanes, "FROM_COLS", 0)
    for cols, lines in ((256, 3), (1280, 21)):
        ws = matrices(cols, cols, (codes, lines), (floats, 2), (codes, 5), (floats, 1))
        for rows in (1, 2):
            x = activations(rows, cols, np.random.default_rng(rows))
            assert kernels(device_of(2), x, ws) == [f"pair_{rows}"]
            on_device(lambda d, x=x, ws=ws: gpu.linear(d, x, ws), naive.linear(x, ws))
            turned = gpu.linear(HostDevice(), x.flip(1).contiguous(), ws)
            expected = naive.linear(x, ws)
            assert all(differing(a, b) for a, b in zip(turned, expected, strict=True)), "control: another x"


@pytest.mark.parametrize("rows", [1, 2])
def test_real_columns_several_blocks_of_each_and_slots_that_are_filled_again(rows: int) -> None:
    """Units behind each other in a slot, rows of floats that their groups of lanes do one after the other."""
    ws, x = matrices(9, 2560, ("Q6_K", 4 * 90), ("BF16", 25)), activations(rows, 2560, np.random.default_rng(rows))
    for order in ORDERS:
        device = device_of(5, order=order)
        found = of(device, rows, 2560, ws[:1], ws[1:])
        assert found is not None
        assert (found.float_blocks, found.code_blocks, found.groups, found.slots) == (1, 4, 10, 2)
        together = gpu.linear(device, x, ws)
        inputs = launch.quantise(device, x, {w.format for w in ws})
        apart = [gpu.of_format(device, inputs, w.format, [w])[0] for w in ws]
        for a, b, c in zip(together, apart, naive.linear(x, ws), strict=True):
            assert differing(a, c) == 0 and differing(b, c) == 0


def test_a_product_that_no_block_does_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: blocks that all do the same leave the other results as they were."""
    ws, x = matrices(4, 2048, ("Q4_K", 12), ("F32", 3)), normal(1, 1, 2048)
    found = of(device_of(4), 1, 2048, ws[:1], ws[1:])
    assert found is not None
    blocks = found.float_blocks + found.code_blocks
    expected = naive.linear(x, ws)
    for floats, right in ((found.float_blocks, [True, True]), (0, [True, False]), (blocks, [False, True])):
        forced = replace(found, float_blocks=floats, code_blocks=blocks - floats)
        monkeypatch.setattr(pair, "find", lambda *_, forced=forced: forced)
        with poisoned():
            got = gpu.linear(device_of(4), x, ws)
        assert [differing(a, b) == 0 for a, b in zip(got, expected, strict=True)] == right


def test_blocks_are_divided_as_was_measured_best() -> None:
    delta, router, indexer = (
        matrices(1, 2560, ("Q6_K", codes), (floats, lines))
        for codes, floats, lines in ((16384, "BF16", 96), (1280, "F32", 513), (13312, "BF16", 640))
    )

    def divided(processors: int, ws: list[Weight]) -> tuple[int, int] | None:
        found = of(device_of(processors), 1, 2560, ws[:1], ws[1:])
        return None if found is None else (found.float_blocks, found.code_blocks)

    assert [divided(132, ws) for ws in (delta, router, indexer)] == [(3, 129), (66, 66), (24, 108)]
    assert [divided(148, ws) for ws in (delta, router, indexer)] == [(3, 145), (74, 74), (26, 122)]
    assert divided(80, router) is None, "more rows of floats for each block than their kernel takes by itself"


def test_what_stays_two_launches() -> None:
    ws = matrices(2, 2048, ("Q6_K", 40), ("F32", 3))
    assert kernels(device_of(4), torch.zeros(1, 2048), ws) == ["pair_1"]
    for rows in (3, 8):
        assert kernels(device_of(4), torch.zeros(rows, 2048), ws) == ["rounds_1", "float_lanes_4"]
    q8 = matrices(2, 2048, ("Q8_0", 40), ("F32", 3))
    assert kernels(device_of(4), torch.zeros(1, 2048), q8) == ["linear_1", "float_lanes_1"]
    short = matrices(2, 1024, ("Q6_K", 40), ("F32", 3))
    assert kernels(device_of(4), torch.zeros(1, 1024), short) == ["linear_1", "linear_1"]
    assert kernels(device_of(1), torch.zeros(1, 2048), ws) == ["linear_1", "float_lanes_1"]
    three = matrices(2, 2048, ("F32", 3), ("Q6_K", 40), ("BF16", 3))
    assert kernels(device_of(4), torch.zeros(1, 2048), three) == ["pair_1", "float_lanes_1"]


def test_floats_fit_the_shared_memory_of_small_gpus() -> None:
    met = set()
    for most in (99 << 10, 163 << 10, 227 << 10):
        device = device_of(128, shared_memory(most))
        for name, cols, size in product(PAIRS, (2048, 2560, 4096), (1, 2)):
            for lines in ((16384, 96), (1280, 513), (13312, 640), (256, 130)):
                codes, floats = (Weight(FORMATS[fmt], n, cols, ()) for fmt, n in zip(name, lines, strict=True))
                blocks = pair.float_blocks(device, size, [codes], [floats])
                met.add((most >> 10, blocks > 0))
                if blocks:
                    needed = lanes.shared_bytes(floats.format, cols, -(-floats.rows // blocks), size)
                    assert needed + share.STATIC <= device.shared.dynamic
                    assert blocks <= 128 // pair.MOST_SHARE + 128 // pair.SPARED
    assert met == {(99, True), (99, False), (163, True), (163, False), (227, True), (227, False)}


def test_bits_with_little_shared_memory() -> None:
    """The host's tables are those of a large GPU, so only what surrounds them is smaller."""
    ws, x = matrices(6, 2560, ("Q6_K", 60), ("F32", 7)), activations(1, 2560, np.random.default_rng(1))
    device = device_of(32, SharedMemory(99 << 10))
    found = of(device, 1, 2560, ws[:1], ws[1:])
    assert found is not None and found.shared <= device.shared.dynamic
    for a, b in zip(gpu.linear(device, x, ws), naive.linear(x, ws), strict=True):
        assert differing(a, b) == 0
    assert of(device_of(32, SharedMemory(24 << 10)), 1, 2560, ws[:1], ws[1:]) is None, "no room for both"
