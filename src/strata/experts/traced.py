"""Routing from a trace, in place of the router's, and the recording of one."""

from collections.abc import Sequence

import numpy as np
import torch

from strata.experts.map import ExpertMap
from strata.experts.protocol import Choosing, Experts, SharedOutput
from strata.experts.traces import RoutingTrace
from strata.kernels.ops import Ops

KEPT_ROWS = 64
"""Steps of up to so many rows read the trace at the same addresses every time, as recorded steps must."""


class TracedExperts:
    """Implements `Experts`: the ids of every step come from the trace, one token of it per row; weights are kept."""

    def __init__(self, inner: Experts, trace: RoutingTrace, layers: Sequence[int], device: torch.device) -> None:
        """`layers`: numbers of the layers with experts, in order; the trace has as many."""
        self.inner = inner
        self.trace = trace
        self.index = {layer: i for i, layer in enumerate(layers)}
        self.device = device
        self.token = 0
        """Of the trace, read next."""
        self.buffers: dict[int, torch.Tensor] = {}

    def begin_step(self, rows: int) -> None:
        """Bring the step's ids to where it reads them."""
        ids = torch.from_numpy(np.ascontiguousarray(self.trace.rows(self.token, rows).transpose(1, 0, 2)))
        self.token += rows
        self.buffers = {n: b for n, b in self.buffers.items() if n <= KEPT_ROWS or n == rows}
        if rows not in self.buffers:
            self.buffers[rows] = torch.empty(ids.shape, dtype=torch.int32, device=self.device)
        self.buffers[rows].copy_(ids)
        self.inner.begin_step(rows)

    def run(
        self,
        layer: int,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        shared: SharedOutput | None = None,
    ) -> torch.Tensor:
        """See `Experts.run`; `ids` are not looked at."""
        return self.inner.run(layer, x, self.buffers[len(ids)][self.index[layer]], weights, shared)

    def choose_and_run(
        self, ops: Ops, layer: int, x: torch.Tensor, choosing: Choosing, shared: SharedOutput | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Experts.choose_and_run`."""
        ids, weights = choosing.chosen(ops)
        return self.run(layer, x, ids, weights, shared), ids, weights

    def prefetch(self, forecast: Sequence[tuple[int, int]]) -> None:
        """A forecast is the router's: it says nothing about the trace."""

    def wait_s(self) -> float:
        """See `Experts.wait_s`: nothing is to be foretold."""
        return 0.0

    def waited_s(self, layers: Sequence[int]) -> float:
        """See `Experts.waited_s`."""
        return self.inner.waited_s(layers)

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
        return {**self.inner.status(), "routing": self.trace.origin}


class RoutingRecorder:
    """A tap that keeps what every router chose."""

    def __init__(self) -> None:
        self.layers: dict[str, list[torch.Tensor]] = {}

    def __call__(self, name: str, tensors: dict[str, torch.Tensor]) -> None:
        """Take note of a router's `ids`; everything else passes."""
        if name.endswith(".router"):
            self.layers.setdefault(name, []).append(tensors["ids"].cpu().clone())

    def trace(self, experts: int, origin: str) -> RoutingTrace:
        """All rows since the beginning, in the order in which they ran."""
        layers = [torch.cat(parts).numpy() for parts in self.layers.values()]
        return RoutingTrace(np.stack(layers, axis=1).astype(np.int32), experts, origin)
