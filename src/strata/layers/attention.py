"""Grouped-query attention over a paged cache, with optional q/k norms, output gate and QSA selection."""

import math
from dataclasses import dataclass

import torch

from strata.kernels.views import HeadNorms, Weight
from strata.layers.batch import Batch
from strata.layers.norm import RmsNorm
from strata.layers.rope import Rope
from strata.layers.sparse_attention import Indexer
from strata.state.sequence import LayerState


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(q k^T / sqrt(d)) v; queries of head h read KV head h // (heads / kv_heads).

    With `gated`, W_q holds per head its d query rows, then its d gate rows (models of the Qwen3-Next family); the
    output is multiplied by sigmoid(gate) before W_o.
    """

    name: str
    q: Weight
    k: Weight
    v: Weight
    out: Weight
    q_norm: RmsNorm | None
    k_norm: RmsNorm | None
    rope: Rope
    heads: int
    kv_heads: int
    head_dim: int
    gated: bool
    indexer: Indexer | None = None

    def __call__(self, x: torch.Tensor, batch: Batch, state: LayerState) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden], before the residual."""
        ops, rows = batch.ops, batch.rows
        assert state.keys is not None and state.values is not None
        q, k, v, *index = ops.linear(x, (self.q, self.k, self.v, *(self.indexer.inputs if self.indexer else ())))
        q, gate = self.split_gate(q)
        k, v = (each.view(-1, self.kv_heads, self.head_dim) for each in (k, v))
        given = (q, k, v, self.norms, batch.angles(self.rope), self.rope.layout, state.keys, state.values, rows)
        scale = 1.0 / math.sqrt(self.head_dim)
        if self.indexer is None:
            q, k = ops.attention_inputs(*given)
            self.report_heads(q, k, batch)
            o = ops.attention(q, state.keys, state.values, rows, scale)
        else:
            q, k, asked = ops.indexed_inputs(*given, self.indexer.made_of(index, self.rope, state))
            self.report_heads(q, k, batch)
            positions, count = self.indexer.choose(asked, batch, state)
            batch.report(f"{self.name}.selected", positions=positions, count=count)
            o = ops.sparse_attention(q, state.keys, state.values, rows, scale, positions, count)
        if gate is not None:
            o = ops.gate_heads("sigmoid", gate, o.view(gate.shape))
        (y,) = ops.linear(o, (self.out,))
        batch.report(self.name, x=x, y=y)
        return y

    def report_heads(self, q: torch.Tensor, k: torch.Tensor, batch: Batch) -> None:
        """Queries and keys are ready."""
        batch.report(f"{self.name}.q", y=q)
        batch.report(f"{self.name}.k", y=k)

    @property
    def norms(self) -> HeadNorms | None:
        """Of queries and keys, by their eps."""
        if self.q_norm is None or self.k_norm is None:
            return None
        return HeadNorms(self.q_norm.weight, self.k_norm.weight, self.q_norm.eps)

    def split_gate(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """W_q x -> (queries [T, heads, d], a view; gate of that shape, another, or None)."""
        if not self.gated:
            return q.view(-1, self.heads, self.head_dim), None
        both = q.view(-1, self.heads, 2, self.head_dim)
        return both[:, :, 0], both[:, :, 1]
