"""The map of experts: what it says, and that its uses are the routing's."""

import base64

import numpy as np
import pytest
import torch

from experts.test_gpu import EXPERTS, TOP_K, call, closing, placed, store  # noqa: F401
from models.made import load, ops_of, path_of
from strata.experts.cpu import CpuExperts
from strata.experts.map import NONE, map_of
from strata.kernels.rendezvous.naive import Tier


def test_values_by_hand() -> None:
    tiers = {4: np.array([Tier.FRAME, Tier.HOST]), 2: np.array([Tier.PINNED, Tier.FRAME, Tier.HOST])}
    found = map_of({4: 2, 2: 3}, tiers, {4: [0, 16], 2: [64, 4, 0]}).values()
    assert (found["layers"], found["experts"]) == ([2, 4], 3)
    assert list(base64.b64decode(str(found["tiers"]))) == [1, 0, 2, 0, 2, NONE]
    assert list(base64.b64decode(str(found["heat"]))) == [255, 64, 0, 0, 128, 0]
    assert found["in_tier"] == {"vram": 2, "pinned": 1, "host": 2}
    assert found["uses_in_tier"] == {"vram": 4.0, "pinned": 64.0, "host": 16.0}
    assert found["counted"] is True


def test_a_model_without_experts_has_an_empty_map() -> None:
    found = map_of({}, {}, {}).values()
    assert (found["layers"], found["experts"], found["tiers"], found["counted"]) == ([], 0, "", False)


def counted(ids: torch.Tensor, experts: int) -> list[int]:
    return np.bincount(ids.numpy().reshape(-1), minlength=experts).tolist()


def test_the_cpus_uses_are_what_the_routing_says() -> None:
    ops, model = ops_of(), load(path_of("qwen3_moe", "gguf"))
    experts = CpuExperts(ops, model.store)
    per_layer = len(model.store.bank(0).gate)
    before = experts.map().uses.copy()
    ids = torch.tensor([[0, 3, 5], [5, 3, 1], [5, 0, 7]], dtype=torch.int32)
    for _ in range(2):
        experts.run(1, torch.ones(3, 64), ids, torch.ones(3, 3))
    more = experts.map().uses - before
    assert more[1].tolist() == [2 * count for count in counted(ids, per_layer)]
    assert not more[0].any(), "another layer's uses are its own"
    assert set(experts.map().tiers.reshape(-1)) == {Tier.HOST}


@pytest.mark.parametrize("frames", [0.0, 0.5])
def test_the_gpus_map_has_every_expert_where_the_table_has_it(store, closing, frames: float) -> None:  # noqa: F811
    experts = closing(placed(store, TOP_K, frames, 0.3))
    found = experts.map()
    assert found.layers == (0, 2)
    for row, layer in enumerate(found.layers):
        for expert in range(EXPERTS):
            held = (layer, expert) in experts.cache.frames.held
            assert (found.tiers[row, expert] == Tier.FRAME) == held
    assert found.values()["in_tier"]["vram"] == len(experts.cache.frames.held)
    x, ids, weights = call(2, 0)
    experts.begin_step(2)
    for layer in (0, 2):
        experts.run(layer, x, ids, weights)
    experts.end_step()
    experts.adapt()
    assert experts.map().uses[0].tolist() == counted(ids, EXPERTS)
