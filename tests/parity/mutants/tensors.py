"""Tensors of a checkpoint, changed between the file and the model."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from strata.kernels.views import ExpertBank
from strata.models import registry
from strata.models.source import Rule

Change = Callable[[torch.Tensor], torch.Tensor]
NORMS = (
    "attn_norm",
    "ffn_norm",
    "post_attention_norm",
    "attn_q_norm",
    "attn_k_norm",
    "output_norm",
    "hc_attn_norm",
    "hc_ffn_norm",
    "output_hc_norm",
    "indexer.q_norm",
    "indexer.k_norm",
    "ple_norm_key",
    "ple_norm_query",
    "ple_norm_conv",
)
KEY_HEADS, SHARE, HEAD_DIM = 3, 3, 16


class Changed:
    """A source whose small tensors, matrices or experts are changed on the way."""

    def __init__(self, source, vector=None, weight=None, experts=None) -> None:
        self.source, self.on_vector, self.on_weight, self.on_experts = source, vector, weight, experts

    def __getattr__(self, name):
        return getattr(self.source, name)

    def vector(self, name, *shape):
        found = self.source.vector(name, *shape)
        return self.on_vector(leaf(name), found) if self.on_vector else found

    def weight(self, name, rows, cols):
        found = self.source.weight(name, rows, cols)
        return self.on_weight(leaf(name), found) if self.on_weight else found

    def experts(self, layer, count, width, hidden):
        found = self.source.experts(layer, count, width, hidden)
        return self.on_experts(found) if self.on_experts else found


def leaf(name: str) -> str:
    """A tensor's name without its layer."""
    return name.split(".", 2)[2] if name.startswith("blk.") else name


def plant(patch: pytest.MonkeyPatch, **changes) -> None:
    """Every model built from now on reads through a `Changed` source."""
    honest = registry.open_source
    patch.setattr(registry, "open_source", lambda checkpoint, name: Changed(honest(checkpoint, name), **changes))


def vectors(names: tuple[str, ...], change: Change) -> Callable[[pytest.MonkeyPatch], None]:
    """Change the named small tensors."""
    return lambda patch: plant(patch, vector=lambda name, x: change(x) if name in names else x)


def grouped(x: torch.Tensor, per_head: int) -> torch.Tensor:
    """Value heads along the last axis from tiled back to grouped order."""
    parts = x.reshape(*x.shape[:-1], SHARE, KEY_HEADS, per_head)
    return parts.transpose(-3, -2).reshape(x.shape).contiguous()


def output_columns_grouped(patch: pytest.MonkeyPatch) -> None:
    """The delta net's output projection as if its columns were not tiled."""

    def change(name, weight):
        if name != "ssm_out":
            return weight
        values = torch.from_numpy(weight.planes[0].numpy().view(np.float32).copy())
        raw = torch.from_numpy(grouped(values, HEAD_DIM).numpy().view(np.uint8))
        return replace(weight, planes=(raw,))

    plant(patch, weight=change)


def gate_and_up_swapped(patch: pytest.MonkeyPatch) -> None:
    """Every expert's gate and up matrices exchanged."""
    plant(patch, experts=lambda bank: ExpertBank(bank.up, bank.gate, bank.down))


def rule(ours: str, **change) -> Callable[[pytest.MonkeyPatch], None]:
    """Read one tensor of safetensors folders by a changed rule, in every family that has it."""

    def plant_rule(patch: pytest.MonkeyPatch) -> None:
        for entry in registry.ARCHITECTURES.values():
            if ours in entry.rules:
                assert isinstance(entry.rules, dict)
                patch.setitem(entry.rules, ours, replace(entry.rules[ours], **change))

    return plant_rule


def index_rows_swapped(patch: pytest.MonkeyPatch) -> None:
    """The indexer's key rows taken from the front of the stacked matrix, the queries from the back."""
    name = "self_attn.indexer.index_qk_proj"
    rules = registry.ARCHITECTURES["qwen4exp"].rules
    assert isinstance(rules, dict)
    patch.setitem(rules, "indexer.q_proj", Rule(name, rows="tail"))
    patch.setitem(rules, "indexer.k_proj", Rule(name, rows="head"))
