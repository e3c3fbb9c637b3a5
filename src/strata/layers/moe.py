"""Feed-forward blocks: mixture of experts with an optional shared expert, and the dense form."""

from dataclasses import dataclass

import torch

from strata.experts.protocol import Experts
from strata.kernels.ops import Ops
from strata.kernels.views import Weight
from strata.layers.batch import Batch


@dataclass(frozen=True, slots=True)
class GatedFeedForward:
    """y = W_down (silu(W_gate x) * W_up x)."""

    gate: Weight
    up: Weight
    down: Weight

    def __call__(self, ops: Ops, x: torch.Tensor) -> torch.Tensor:
        return self.with_products(ops, x, ())[0]

    def with_products(
        self, ops: Ops, x: torch.Tensor, others: tuple[Weight, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """(y, the products of `others` with x, which are done in one go with the first two)."""
        gate, up, *products = ops.linear(x, (self.gate, self.up, *others))
        (y,) = ops.linear(ops.gate("silu", gate, up), (self.down,))
        return y, tuple(products)


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """An expert that every token visits, behind its own sigmoid gate (a single row)."""

    network: GatedFeedForward
    gate: Weight

    def add(self, ops: Ops, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """y + sigmoid(w . x) * expert(x), one fma per value."""
        own, (gate,) = self.network.with_products(ops, x, (self.gate,))
        return ops.stream_add(y, own, gate, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Moe:
    """softmax(W_r x), the `top_k` largest renormalised, their experts combined in rank order, the shared expert
    last.
    """

    name: str
    layer: int
    router: Weight
    experts: Experts
    top_k: int
    renormalise: bool
    shared: SharedExpert | None

    def __call__(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden], before the residual."""
        ops = batch.ops
        (logits,) = ops.linear(x, (self.router,))
        ids, weights = ops.route(logits, self.top_k, self.renormalise)
        batch.report(f"{self.name}.router", x=x, ids=ids, weights=weights)
        y = self.experts.run(self.layer, x, ids, weights)
        batch.close(f"{self.name}.routed")
        if self.shared is not None:
            y = self.shared.add(ops, x, y)
        batch.report(f"{self.name}.moe", x=x, y=y)
        return y


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense feed-forward block in the place of experts."""

    name: str
    network: GatedFeedForward

    def __call__(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden], before the residual."""
        y = self.network(batch.ops, x)
        batch.report(f"{self.name}.ffn", x=x, y=y)
        return y
