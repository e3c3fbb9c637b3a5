"""Experts on the CPU read the store of the moment."""

import pytest
import torch

from models.made import load, ops_of, path_of
from strata.core.errors import UnsupportedError
from strata.experts.cpu import CpuExperts


def test_the_layers_own_bank_is_used_and_a_forecast_changes_nothing():
    ops, model = ops_of(), load(path_of("qwen3_moe", "gguf"))
    experts = CpuExperts(ops, model.store)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[0, 3, 5], [7, 1, 2], [3, 0, 6]], dtype=torch.int32)
    weights = torch.tensor([[0.5, 0.3, 0.2]] * 3)
    found = [experts.run(layer, x, ids, weights) for layer in (0, 1)]
    assert not torch.equal(*found)
    experts.prefetch([(1, 7), (0, 3)])
    model.store.to_arena(lambda done, of: None)
    for layer in (0, 1):
        assert torch.equal(experts.run(layer, x, ids, weights), found[layer])
        assert torch.equal(found[layer], ops.experts(x, ids, weights, model.store.bank(layer)))


def test_each_distinct_expert_of_a_step_is_read_once():
    ops, model = ops_of(), load(path_of("qwen3_moe", "gguf"))
    before = ops.native.distinct_experts
    ids = torch.tensor([[0, 3, 5], [5, 3, 0]], dtype=torch.int32)
    CpuExperts(ops, model.store).run(0, torch.ones(2, 64), ids, torch.ones(2, 3))
    assert ops.native.distinct_experts - before == 3


def test_there_is_no_vram_to_resize():
    ops = ops_of()
    with pytest.raises(UnsupportedError, match="no budget of VRAM here"):
        CpuExperts(ops, load(path_of("qwen3_moe", "gguf")).store).resize(1 << 30)
