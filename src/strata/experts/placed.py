"""The experts of a model whose placement is decided after it was built."""

from collections.abc import Sequence

import torch

from strata.experts.map import ExpertMap
from strata.experts.protocol import Choosing, Experts, SharedOutput
from strata.kernels.ops import Ops


class PlacedExperts:
    """Implements `Experts` by another one, which may be replaced between steps as long as none is recorded."""

    def __init__(self, inner: Experts) -> None:
        self.inner = inner

    def run(
        self,
        layer: int,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        shared: SharedOutput | None = None,
    ) -> torch.Tensor:
        """See `Experts.run`."""
        return self.inner.run(layer, x, ids, weights, shared)

    def choose_and_run(
        self, ops: Ops, layer: int, x: torch.Tensor, choosing: Choosing, shared: SharedOutput | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Experts.choose_and_run`."""
        return self.inner.choose_and_run(ops, layer, x, choosing, shared)

    def prefetch(self, forecast: Sequence[tuple[int, int]]) -> None:
        """See `Experts.prefetch`."""
        self.inner.prefetch(forecast)

    def wait_s(self) -> float:
        """See `Experts.wait_s`."""
        return self.inner.wait_s()

    def waited_s(self, layers: Sequence[int]) -> float:
        """See `Experts.waited_s`."""
        return self.inner.waited_s(layers)

    def begin_step(self, rows: int) -> None:
        """See `Experts.begin_step`."""
        self.inner.begin_step(rows)

    def end_step(self) -> None:
        """See `Experts.end_step`."""
        self.inner.end_step()

    def resize(self, budget_bytes: int) -> int:
        """See `Experts.resize`."""
        return self.inner.resize(budget_bytes)

    def map(self) -> ExpertMap:
        """See `Experts.map`."""
        return self.inner.map()

    def status(self) -> dict[str, object]:
        """See `Experts.status`."""
        return self.inner.status()
