"""Feed-forward blocks: mixture of experts with an optional shared expert, and the dense form."""

from dataclasses import dataclass

import torch

from strata.experts.protocol import Choosing, Experts, SharedOutput
from strata.kernels.ops import Ops
from strata.kernels.views import Weight
from strata.layers.batch import Batch


@dataclass(frozen=True, slots=True)
class GatedFeedForward:
    """y = W_down (silu(W_gate x) * W_up x)."""

    gate: Weight
    up: Weight
    down: Weight

    @property
    def inputs(self) -> tuple[Weight, Weight]:
        """The matrices that read x."""
        return self.gate, self.up

    def __call__(self, ops: Ops, x: torch.Tensor) -> torch.Tensor:
        gate, up = ops.linear(x, self.inputs)
        return self.output(ops, gate, up)

    def output(self, ops: Ops, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """y from the products of `inputs`."""
        (y,) = ops.linear(ops.gate("silu", gate, up), (self.down,))
        return y


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """An expert that every token visits, behind its own sigmoid gate (a single row)."""

    network: GatedFeedForward
    gate: Weight

    @property
    def inputs(self) -> tuple[Weight, Weight, Weight]:
        """The matrices that read x: the gate's, the network's."""
        return self.gate, *self.network.inputs


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
        logits, *shared = ops.linear(x, (self.router, *(self.shared.inputs if self.shared is not None else ())))
        batch.close(f"{self.name}.router")
        branch, last = ops.branch(len(x)), None
        if self.shared is not None:  # beside the routed experts, whose choice and placing leave a GPU idle
            with branch.work():
                strength, gate, up = shared
                last = SharedOutput(self.shared.network.output(ops, gate, up), strength, branch.join)
            batch.close(f"{self.name}.shared")
        choosing = Choosing(logits, self.top_k, self.renormalise)
        y, ids, weights = self.experts.choose_and_run(ops, self.layer, x, choosing, last)
        batch.tell(f"{self.name}.router", x=x, ids=ids, weights=weights)
        if batch.routed is not None:
            batch.routed[self.layer] = ids
        batch.close(f"{self.name}.routed")
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
