"""The routed experts on a device equal their specification bit for bit, on the emulator."""

import numpy as np
import pytest
import torch

from kernels.product_cases import activations, bank_of, differing
from strata.kernels.experts import gpu, naive
from strata.kernels.experts.table import TIER_SHIFT, described, table_of
from strata.kernels.host_device import HostDevice
from strata.kernels.native import FORMAT_CODES
from strata.quant.formats import FORMATS

MIXED = [
    ("IQ3_S", "IQ3_S", "IQ4_NL"),
    ("Q4_K", "Q6_K", "Q8_0"),
    ("IQ3_S", "Q4_K", "Q2_0"),
    ("BF16", "F32", "NVFP4"),
    ("Q6_K", "IQ2_S", "F16"),
    ("IQ1_M", "Q5_K", "IQ4_NL"),
]


def routing(rng: np.random.Generator, rows: int, experts: int, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = np.stack([rng.permutation(experts)[:top_k] for _ in range(rows)]).astype(np.int32)
    return torch.from_numpy(ids), torch.from_numpy(rng.random((rows, top_k)).astype(np.float32))


@pytest.mark.parametrize("rows", [1, 2, 11, 34])
def test_experts_of_mixed_formats(rows: int) -> None:
    rng = np.random.default_rng(9)
    bank, device = bank_of(rng, MIXED, 256, 192), HostDevice(order=rows)
    x = activations(rows, 256, rng) * 0.1
    ids, factors = routing(rng, rows, 6, 3)
    expected = naive.experts(x, ids, factors, bank)
    assert expected.abs().max() > 0
    table = table_of(device, bank)
    assert differing(gpu.experts(device, x, ids, factors, table), expected) == 0
    flipped = gpu.experts(device, x, ids.flip(1).contiguous(), factors.flip(1).contiguous(), table)
    assert differing(flipped, expected) > 0  # control: the rank order shows


@pytest.mark.parametrize("down", ["IQ4_NL", "Q8_0", "NVFP4", "F16"])
@pytest.mark.parametrize("name", ["IQ3_S", "Q4_K", "Q8_0", "IQ4_NL", "BF16"])
@pytest.mark.parametrize("rows", [1, 9])
def test_experts_of_one_format_are_fused(name: str, down: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    bank, device = bank_of(rng, [(name, name, down)] * 5, 256, 192), HostDevice(order=3)
    x = activations(rows, 256, rng) * 0.1
    ids, factors = routing(rng, rows, 5, 2)
    table = table_of(device, bank)
    assert table.fused == FORMATS[name]
    assert differing(gpu.experts(device, x, ids, factors, table), naive.experts(x, ids, factors, bank)) == 0


@pytest.mark.parametrize("name", FORMAT_CODES)
def test_every_format_as_gate_up_and_down(name: str) -> None:
    rng, size = np.random.default_rng(2), 256
    bank, device = bank_of(rng, [(name, name, name)] * 3, size, size), HostDevice()
    x = activations(2, size, rng) * 1e-3
    ids, factors = routing(rng, 2, 3, 2)
    got = gpu.experts(device, x, ids, factors, table_of(device, bank))
    assert differing(got, naive.experts(x, ids, factors, bank)) == 0


def test_an_expert_of_more_rows_than_a_job_holds() -> None:
    rng = np.random.default_rng(4)
    bank, device = bank_of(rng, MIXED[:2] + MIXED[:1], 256, 192), HostDevice(order=5)
    x, (ids, factors) = activations(20, 256, rng) * 0.1, routing(rng, 20, 2, 2)
    assert (
        differing(gpu.experts(device, x, ids, factors, table_of(device, bank)), naive.experts(x, ids, factors, bank))
        == 0
    )


def test_experts_of_another_tier_leave_their_places() -> None:
    rng = np.random.default_rng(6)
    bank, device = bank_of(rng, MIXED[:1] * 4, 256, 192), HostDevice()
    x, (ids, factors) = activations(5, 256, rng) * 0.1, routing(rng, 5, 4, 2)
    entries = table_of(device, bank).entries.clone()
    elsewhere = [1, 3]
    for expert in elsewhere:
        entries[expert, :6] = 0  # nothing may read them
        entries[expert, 9] |= 1 << TIER_SHIFT
    table = described(entries, bank)
    results = torch.full((5, 2, 256), 7.0)
    gpu.pair_results(device, gpu.group(device, x, ids, table), table, results)
    away = torch.isin(ids, torch.tensor(elsewhere, dtype=torch.int32))
    assert away.any() and not away.all()
    assert (results[away] == 7).all()
    ones, y = torch.ones(5, 1), torch.empty(5, 256)
    for rank in range(2):
        expected = naive.experts(x, ids[:, rank : rank + 1].contiguous(), ones, bank)
        results[away[:, rank], rank] = expected[away[:, rank]]  # as whoever computes the others would
        assert differing(results[:, rank].contiguous(), expected) == 0
    gpu.combine(device, results, factors, y)
    assert differing(y, naive.experts(x, ids, factors, bank)) == 0


def test_rows_of_many_sub_blocks_in_mixed_formats() -> None:
    rng = np.random.default_rng(8)
    bank, device = (
        bank_of(rng, [("Q4_K", "IQ3_S", "Q8_0"), ("IQ2_XS", "Q4_K", "IQ4_NL")], 1280, 64),
        HostDevice(order=9),
    )
    x, (ids, factors) = activations(9, 1280, rng) * 0.1, routing(rng, 9, 2, 2)
    got = gpu.experts(device, x, ids, factors, table_of(device, bank))
    assert differing(got, naive.experts(x, ids, factors, bank)) == 0


@pytest.mark.parametrize("shift", [0, 2])
def test_gate_and_up_may_lie_differently_in_words(shift: int) -> None:
    rng = np.random.default_rng(10)
    bank, device = bank_of(rng, [("IQ3_S", "IQ3_S", "IQ4_NL")] * 2, 2560, 32), HostDevice(order=2)
    x, (ids, factors) = activations(3, 2560, rng) * 0.1, routing(rng, 3, 2, 2)
    entries, moved = table_of(device, bank).entries.clone(), []
    for expert, up in enumerate(bank.up):
        plane = up.planes[0].flatten()
        room = torch.zeros(plane.numel() + 1200, dtype=torch.uint8)
        start = -room.data_ptr() % 16 + shift
        room[start : start + plane.numel()] = plane
        entries[expert, 1] = room.data_ptr() + start
        moved.append(room)
    expected = naive.experts(x, ids, factors, bank)
    assert differing(gpu.experts(device, x, ids, factors, described(entries, bank)), expected) == 0
    entries[:, 1] += 1100  # control: a row further
    assert differing(gpu.experts(device, x, ids, factors, described(entries, bank)), expected) > 0


def test_a_table_of_matrices_that_do_not_fit_is_refused() -> None:
    rng = np.random.default_rng(7)
    bank = bank_of(rng, MIXED[:1], 256, 192)
    other = bank_of(rng, MIXED[:1], 256, 160)
    with pytest.raises(ValueError, match=r"down of expert 0 is 256 x 160, expected \(256, 192\)"):
        table_of(HostDevice(), type(bank)(bank.gate, bank.up, other.down))
