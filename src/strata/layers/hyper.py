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

    def read(
        self, residual: "torch.Tensor | Unwritten", batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """R -> (R, with all written; mixed input [T, hidden]; W_inject X [T, n], which `write` is given)."""
        assert self.inject is not None
        if isinstance(residual, Unwritten):
            residual, normed = residual.normed(self.norm, batch)
        else:
            normed = self.norm(batch.ops, residual)
        mixed, (gates,) = self.mix(normed, batch.ops, (self.down, self.inject))
        batch.report(f"{self.name}.read", x=residual, mixed=mixed, **self.strength(gates, batch))
        return residual, mixed, gates

    def strength(self, gates: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """w [T, n] by its name, for a tap; without one, `write` alone computes it."""
        if batch.tap is None:
            return {}
        return {"inject": batch.ops.activate("sigmoid", gates, divisor=self.streams, factor=2.0)}

    def final(self, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """R -> the head's input [T, hidden]; there is nothing to write back."""
        mixed, _ = self.mix(self.norm(batch.ops, residual), batch.ops, (self.down,))
        batch.report(self.name, x=residual, y=mixed)
        return mixed

    def mix(
        self, normed: torch.Tensor, ops: Ops, weights: tuple[Weight, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """X -> (m, products of the weights after the first)."""
        low, *others = ops.linear(normed, weights)
        return ops.low_rank_mix(low, self.up, normed, self.streams), tuple(others)

    def write(self, residual: torch.Tensor, block: torch.Tensor, gates: torch.Tensor, batch: Batch) -> torch.Tensor:
        """R_s + w_s * block for every stream."""
        y = batch.ops.stream_add(residual, block, gates, self.streams, 2.0)
        self.report_write(residual, block, gates, y, batch)
        return y

    def report_write(
        self, residual: torch.Tensor, block: torch.Tensor, gates: torch.Tensor, y: torch.Tensor, batch: Batch
    ) -> None:
        """`write` is done."""
        batch.report(f"{self.name}.write", x=residual, block=block, y=y, **self.strength(gates, batch))


@dataclass(frozen=True, slots=True)
class Unwritten:
    """R, and what `hyper` still has to write to it: the norm of the next read does both at once."""

    hyper: HyperRead
    residual: torch.Tensor
    block: torch.Tensor
    gates: torch.Tensor

    def written(self, batch: Batch) -> torch.Tensor:
        """R with all written."""
        return self.hyper.write(self.residual, self.block, self.gates, batch)

    def normed(self, norm: RmsNorm, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """(R with all written, its norm)."""
        streams, found = self.hyper.streams, (self.residual, self.block, self.gates)
        y, normed = batch.ops.stream_add_norm(*found, streams, 2.0, norm.weight, norm.eps)
        self.hyper.report_write(*found, y, batch)
        return y, normed
