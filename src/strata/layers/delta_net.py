"""Gated DeltaNet (arXiv 2412.06464), as the Qwen3-Next family uses it."""

from dataclasses import dataclass
from typing import Literal

import torch

from strata.kernels.ops import Ops
from strata.kernels.views import DeltaInputs, HeadGate, Weight
from strata.layers.batch import Batch
from strata.layers.norm import RmsNorm
from strata.state.journal import LayerJournal
from strata.state.layout import DeltaLayout
from strata.state.sequence import LayerState

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class SeparateInputs:
    """Four matrices: [q | k | v], z, b and a."""

    qkv: Weight
    z: Weight
    b: Weight
    a: Weight

    def __call__(self, ops: Ops, x: torch.Tensor) -> Inputs:
        qkv, z, b, a = ops.linear(x, (self.qkv, self.z, self.b, self.a))
        return qkv, z, b, a


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """Qwen3-Next's packing: rows grouped by key head, [q | k | v.. | z..] in one matrix and [b.. | a..] in the other.

    `qkvz` may also come apart already (then `z` is given and `qkvz` holds [q | k | v]), as llama.cpp's converter
    writes it.
    """

    qkvz: Weight
    z: Weight | None
    ba: Weight
    layout: DeltaLayout

    def __call__(self, ops: Ops, x: torch.Tensor) -> Inputs:
        d = self.layout
        share = d.value_heads // d.key_heads
        if self.z is not None:
            qkv, z, ba = ops.linear(x, (self.qkvz, self.z, self.ba))
        else:
            packed, ba = ops.linear(x, (self.qkvz, self.ba))
            qkv, z = self.unpack(ops, packed)
        b, a = ba.view(-1, d.key_heads, 2, share).unbind(2)
        return qkv, z, ops.join([b]), ops.join([a])

    def unpack(self, ops: Ops, packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Per key head [q dk | k dk | v r*dv | z r*dv] -> ([all q | all k | all v], z)."""
        d = self.layout
        wide = d.value_heads // d.key_heads * d.value_dim
        grouped = packed.view(-1, d.key_heads, 2 * d.key_dim + 2 * wide)
        q, k, v, z = torch.split(grouped, [d.key_dim, d.key_dim, wide, wide], 2)
        return ops.join([q, k, v]), ops.join([z])


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """S <- alpha S; d = beta (v - S^T k); S <- S + k d^T; o = S^T q; y = W_o (norm(o) * act(z)).

    alpha = exp(A softplus(a + dt)) with A = -exp(A_log), beta = sigmoid(b); q, k, v pass a causal convolution and silu
    first. Which key head serves which value head is the file's convention (`layout.pairing`).
    """

    name: str
    inputs: SeparateInputs | PackedInputs
    conv: torch.Tensor
    """[channels, taps], the last tap is the current token"""
    decay_rate: torch.Tensor
    """A [value_heads], negative"""
    dt_bias: torch.Tensor
    norm: RmsNorm
    out: Weight
    gate: Literal["silu", "sigmoid"]
    layout: DeltaLayout

    def __call__(self, x: torch.Tensor, batch: Batch, state: LayerState, journal: LayerJournal | None) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden], before the residual."""
        ops, d = batch.ops, self.layout
        assert state.conv is not None and state.delta is not None
        columns, z, b, a = self.inputs(ops, x)
        read = DeltaInputs(columns, self.conv, state.conv, b, a, self.decay_rate, self.dt_bias)
        gate = HeadGate(self.gate, z, self.norm.weight, self.norm.eps)
        if journal is None and batch.tap is None:
            o = ops.delta_step(read, state.delta, batch.rows, d.key_heads, d.pairing, d.eps, gate)
        else:
            o = self.seen_step(read, state.delta, batch, gate, journal)
        (y,) = ops.linear(o, (self.out,))
        batch.report(self.name, x=x, y=y)
        return y

    def seen_step(
        self, read: DeltaInputs, state: torch.Tensor, batch: Batch, gate: HeadGate, journal: LayerJournal | None
    ) -> torch.Tensor:
        """Ops.delta_step, with what lies between its parts for the tap and the journal."""
        ops, d = batch.ops, self.layout
        made = ops.delta_inputs(read.x, read.weight, read.history, batch.rows, read.b, read.a, read.rate, read.bias)
        for name, y in zip(("qkv", "beta", "decay"), made, strict=True):
            batch.report(f"{self.name}.{name}", y=y)
        if journal is not None:
            journal.conv, journal.rule = read.x, made
        return ops.gated_delta_rule(*made, state, batch.rows, d.key_heads, d.pairing, d.eps, gate)
