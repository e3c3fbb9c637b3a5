"""What is run and counted; no time is asserted."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from models.made import ops_of
from strata.checks.kernel_cases import (
    attention_case,
    delta_case,
    experts_case,
    linear_case,
    random_bank,
    random_weight,
    read_case,
)
from strata.checks.kernel_rates import CASES, KERNELS, Choice, KernelRate, Recorded, kernel_rates, measure
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.native import FORMAT_CODES, describe

SMALL = Choice(formats=("Q4_K",), rows=(1, 3), contexts=(32,), kv_types=("f32",), cols=256, megabytes=1, repeats=2)


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.mark.parametrize("name", FORMAT_CODES)
def test_every_format_has_a_random_matrix_of_finite_numbers(name, rng):
    weight = random_weight(name, 40, 256, rng)
    assert describe(weight)[1:3] == (40, 256)
    (y,) = ops_of().linear(torch.ones(1, 256), [weight])
    assert y.isfinite().all() and y.abs().max() > 0


def test_a_product_counts_the_bytes_of_its_matrix_once_for_all_rows(rng):
    ops = ops_of()
    weight = random_weight("Q4_K", 64, 512, rng)
    case = linear_case(ops, weight, 3, rng)
    before = ops.native.product_bytes
    next(case.calls)()
    assert case.nbytes == ops.native.product_bytes - before == 64 * 2 * 144
    assert case.macs == 3 * 64 * 512


def test_experts_count_each_distinct_one_once(rng):
    ops = ops_of()
    bank = random_bank("IQ3_S+IQ4_NL", 60, rng)
    assert bank.expert_bytes == 2 * 768 * 8 * 110 + 2048 * 24 * 18
    case = experts_case(ops, bank, 3, rng)
    calls = max(8, len(bank.bank.gate) // 8)
    before = ops.native.expert_bytes
    for _ in range(calls):
        next(case.calls)()
    assert case.nbytes == pytest.approx((ops.native.expert_bytes - before) / calls, abs=1)
    assert 8 * bank.expert_bytes < case.nbytes < 24 * bank.expert_bytes


def test_one_row_goes_round_all_experts_before_it_sees_one_again(rng):
    ops = ops_of()
    bank = random_bank("Q4_K+Q6_K", 60, rng)
    case = experts_case(ops, bank, 1, rng)
    assert case.nbytes == 8 * bank.expert_bytes
    seen = [next(case.calls).args[1].flatten().tolist() for _ in range(len(bank.bank.gate) // 8)]
    assert len({expert for ids in seen for expert in ids}) == 8 * len(seen)


def test_attention_has_as_many_sequences_as_fill_the_memory(rng):
    case = attention_case(ops_of(), (4, 2, 32), "f32", 300, 1, rng)
    assert case.nbytes == 2 * 300 * 2 * 32 * 4
    slots = [int(next(case.calls).args[3].slot[0]) for _ in range(8)]
    assert sorted(set(slots)) == list(range(-(-1_000_000 // case.nbytes)))


@pytest.mark.parametrize(("kv_type", "each"), [("f32", 4), ("bf16", 2), ("int8", 1 + 4 / 32)])
def test_keys_and_values_are_kept_in_every_form(kv_type, each, rng):
    case = attention_case(ops_of(), (4, 2, 32), kv_type, 64, 1, rng)
    assert case.nbytes == 2 * 64 * 2 * 32 * each and case.shape == f"4/2 heads of 32, 64 {kv_type}"
    assert next(case.calls)().isfinite().all()


def test_everything_chosen_is_measured_beside_the_memory():
    found = list(kernel_rates(ops_of(), SMALL))
    assert [(rate.kernel, rate.rows) for rate, _ in found] == [
        ("read", 1),
        *(("linear", rows) for rows in (1, 3)),
        *(("experts", rows) for rows in (1, 3) * 2),
        *[("attention", 1)] * 2,
        *(("delta rule", rows) for rows in (1, 4, 64)),
    ]
    assert all(read is found[0][0] and len(rate.seconds) == 2 for rate, read in found)
    only = list(kernel_rates(ops_of(), replace(SMALL, kernels=("attention",))))
    assert [rate.kernel for rate, _ in only] == ["read", "attention", "attention"]
    alone = list(kernel_rates(ops_of(), replace(SMALL, kernels=("read",))))
    assert [rate.kernel for rate, _ in alone] == ["read"] and tuple(CASES) == KERNELS


@pytest.mark.parametrize("kv_type", ["f32", "bf16", "int8"])
def test_a_device_is_measured_on_the_same_operands(kv_type):
    """Its calls give the CPU's bits, so they are the same work."""
    found = []
    for ops in (ops_of(), GpuOps(HostDevice())):
        draw = np.random.default_rng(3)
        weight = random_weight("Q4_K", 8, 256, draw)
        cases = [
            linear_case(ops, weight, 2, draw),
            attention_case(ops, (4, 2, 64), kv_type, 20, 1, draw),
            *([delta_case(ops, 1, 1, draw)] if kv_type == "f32" else []),
        ]
        found.append([(case.nbytes, next(case.calls)()) for case in cases])
    for (nbytes, expected), (same, got) in zip(*found, strict=True):
        one, other = (y[0] if isinstance(y, tuple) else y for y in (expected, got))
        assert nbytes == same and torch.equal(one, other)


def test_a_sample_on_a_device_is_one_program_of_all_its_calls():
    ops, draw = GpuOps(HostDevice()), np.random.default_rng(3)
    case = linear_case(ops, random_weight("Q4_K", 8, 256, draw), 1, draw)
    one, three = Recorded(ops, case, 1), Recorded(ops, case, 3)
    assert len(three.program) == 3 * len(one.program) > 0 and three(case, 3) > 0
    rate, read = measure(case, 2, ops), measure(read_case(ops, 1), 2, ops)
    assert len(rate.seconds) == len(read.seconds) == 2 and min(rate.seconds) > 0 and read.nbytes == 1_000_000


def test_what_others_disturbed_is_measured_again(monkeypatch, rng):
    case = linear_case(ops_of(), random_weight("Q4_K", 8, 256, rng), 1, rng)
    for shares, kept in (([0.5, 0.01], 0.01), ([0.5, 0.2, 0.3], 0.2), ([None], None)):
        left = list(shares)
        monkeypatch.setattr("strata.checks.company.Company.share", lambda self, left=left: left.pop(0))
        rate = measure(case, 2)
        assert rate.company == kept and not left and rate.values(rate)["company"] == kept


def test_a_rate_is_bytes_by_the_median():
    read = KernelRate("read", "", 1, 10**9, 0, (0.1, 0.05, 0.04))
    rate = KernelRate("linear", "Q4_K", 2, 10**9, 10**10, (0.1, 0.2, 0.5))
    values = rate.values(read)
    assert (values["gb_per_second"], values["share_of_read"], values["gmac_per_second"]) == (5.0, 0.25, 50.0)
    assert values["milliseconds"] == {"median": 200.0, "min": 100.0, "max": 500.0, "samples": 3}
    assert "gmac_per_second" not in read.values(read)
