"""GpuOps on the emulator: products and experts through the protocol, a bank's table made once."""

import gc

import numpy as np
import torch

from kernels.layer_cases import same_bits
from kernels.product_cases import activations, bank_of, weight
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.naive_ops import NaiveOps


def test_products_and_experts_have_the_specifications_bits() -> None:
    rng, ops, naive = np.random.default_rng(1), GpuOps(HostDevice()), NaiveOps()
    x = activations(2, 256, rng)
    weights = [weight("Q4_K", 32, 256, rng), weight("F32", 3, 256, rng)]
    for found, expected in zip(ops.linear(x, weights), naive.linear(x, weights), strict=True):
        assert same_bits(found, expected)
    bank = bank_of(rng, [("Q8_0", "Q8_0", "Q8_0")] * 3, 64, 32)
    ids, factors = torch.tensor([[2, 0], [1, 2]], dtype=torch.int32), torch.tensor([[0.7, 0.3], [0.5, 0.5]])
    x = activations(2, 64, rng)
    expected = naive.experts(x, ids, factors, bank)
    assert same_bits(ops.experts(x, ids, factors, bank), expected)
    assert not same_bits(ops.experts(x, ids.flip(1).contiguous(), factors, bank), expected)


def test_a_table_lives_as_long_as_its_bank() -> None:
    ops, bank = GpuOps(HostDevice()), bank_of(np.random.default_rng(1), [("Q8_0", "Q8_0", "Q8_0")], 64, 32)
    assert ops.table(bank) is ops.table(bank)
    assert ops.device.resident_bytes > 0
    del bank
    gc.collect()
    assert ops.device.resident_bytes == 0
