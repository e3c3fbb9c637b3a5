"""Hyper-connections: the residual is several streams, read and written through gates (Qwen4ExpTextGatedResidual)."""

from dataclasses import dataclass

import torch

from strata.kernels.ops import Ops
from strata.kernels.views import Weight
from strata.layers.batch import Batch
from strata.layers.norm import RmsNorm


@dataclass(frozen=True, slots=True)
class HyperRead:
    """X = norm per stream; g = sigmoid(W_up silu(W_down X / n)); m = mean over streams of g X; w = 2 sigmoid(W_inject
    X / n).

    The residual R is [T, n * hidden]; `write` adds w_s * block output to every stream s of the raw R.
    """

    name: str
    norm: RmsNorm
    down: Weight
    up: Weight
    inject: Weight | None
    streams: int

    def read(self, residual: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """R -> (mixed input [T, hidden], W_inject X [T, n], which `write` is given)."""
        assert self.inject is not None
        mixed, (gates,) = self.mix(residual, batch.ops, (self.down, self.inject))
        batch.report(f"{self.name}.read", x=residual, mixed=mixed, **self.strength(gates, batch))
        return mixed, gates

    def strength(self, gates: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """w [T, n] by its name, for a tap; without one, `write` alone computes it."""
        if batch.tap is None:
            return {}
        return {"inject": batch.ops.activate("sigmoid", gates, divisor=self.streams, factor=2.0)}

    def final(self, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """R -> the head's input [T, hidden]; there is nothing to write back."""
        mixed, _ = self.mix(residual, batch.ops, (self.down,))
        batch.report(self.name, x=residual, y=mixed)
        return mixed

    def mix(
        self, residual: torch.Tensor, ops: Ops, weights: tuple[Weight, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """(m, products of the weights after the first)."""
        normed = self.norm(ops, residual)
        low, *others = ops.linear(normed, weights)
        (gate,) = ops.linear(ops.activate("silu", low, divisor=self.streams), (self.up,))
        return ops.stream_mix(gate, normed, self.streams), tuple(others)

    def write(self, residual: torch.Tensor, block: torch.Tensor, gates: torch.Tensor, batch: Batch) -> torch.Tensor:
        """R_s + w_s * block for every stream."""
        y = batch.ops.stream_add(residual, block, gates, self.streams, 2.0)
        batch.report(f"{self.name}.write", x=residual, block=block, y=y, **self.strength(gates, batch))
        return y
