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
        gate, up = ops.linear(x, (self.gate, self.up))
        (y,) = ops.linear(ops.gate("silu", gate, up), (self.down,))
        return y


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """An expert that every token visits, behind its own sigmoid gate (a single row)."""

    network: GatedFeedForward
    gate: Weight

    def add(self, ops: Ops, strength: torch.Tensor, own: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """y + sigmoid(strength) * own, one fma per value, for strength = w . x and own = expert(x)."""
        return ops.stream_add(y, own, strength, 1.0, 1.0)


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
        if self.shared is None:
            (logits,) = ops.linear(x, (self.router,))
            y = self.routed(x, logits, batch)
        else:
            logits, strength = ops.linear(x, (self.router, self.shared.gate))
            branch = ops.branch(len(x))  # beside the routed experts, most of whose launches leave a GPU nearly idle
            with branch.work():
                own = self.shared.network(ops, x)
            batch.close(f"{self.name}.shared")
            y = self.routed(x, logits, batch)
            branch.join()
            y = self.shared.add(ops, strength, own, y)
        batch.report(f"{self.name}.moe", x=x, y=y)
        return y

    def routed(self, x: torch.Tensor, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The chosen experts of the rows, combined in rank order."""
        ids, weights = batch.ops.route(logits, self.top_k, self.renormalise)
        batch.report(f"{self.name}.router", x=x, ids=ids, weights=weights)
        if batch.routed is not None:
            batch.routed[self.layer] = ids
        y = self.experts.run(self.layer, x, ids, weights)
        batch.close(f"{self.name}.routed")
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
