"""All experts on the CPU, straight from the store's bytes."""

from collections.abc import Sequence

import numpy as np
import torch

from strata.core.errors import UnsupportedError
from strata.experts.map import ExpertMap, map_of
from strata.experts.protocol import Choosing, SharedOutput
from strata.kernels.ops import Ops
from strata.kernels.rendezvous.naive import Tier
from strata.store.experts import ExpertStore
from strata.store.paging import Paging

PAGE_RATE = 1.5e9
"""Bytes a second of a mapped file that threads wait for as they touch it, from a fast disk (store/warm.py)."""


class CpuExperts:
    """Implements `Experts`: each distinct expert of a step is read once, for all its rows."""

    def __init__(self, ops: Ops, store: ExpertStore) -> None:
        self.ops = ops
        self.store = store
        self.paging = Paging(store)

    def run(
        self,
        layer: int,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        shared: SharedOutput | None = None,
    ) -> torch.Tensor:
        """See `Experts.run`."""
        y = self.ops.experts(x, ids, weights, self.store.bank(layer))
        return y if shared is None else shared.add(self.ops, y)

    def choose_and_run(
        self, ops: Ops, layer: int, x: torch.Tensor, choosing: Choosing, shared: SharedOutput | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Experts.choose_and_run`."""
        ids, weights = choosing.chosen(ops)
        return self.run(layer, x, ids, weights, shared), ids, weights

    def prefetch(self, forecast: Sequence[tuple[int, int]]) -> None:
        """See `Experts.prefetch`: pages of the mapped file that are missing are brought in beside the step."""
        if forecast:
            self.paging.ask(forecast)

    def wait_s(self) -> float:
        """See `Experts.wait_s`."""
        return self.paging.missing() / PAGE_RATE

    def waited_s(self, layers: Sequence[int]) -> float:
        """See `Experts.waited_s`: all are computed by the threads that ask for them."""
        return 0.0

    def begin_step(self, rows: int) -> None:
        """Nothing to prepare."""

    def end_step(self) -> None:
        """Nothing to settle."""

    def resize(self, budget_bytes: int) -> int:
        """No expert is in VRAM apart from the other weights."""
        raise UnsupportedError("experts have no budget of VRAM here: all are where the other weights are")

    def map(self) -> ExpertMap:
        """See `Experts.map`: all lie where the operations run."""
        banks = self.store.banks
        counts = {layer: len(bank.gate) for layer, bank in banks.items()}
        here = {layer: Tier.HOST if bank.gate[0].planes[0].is_cpu else Tier.FRAME for layer, bank in banks.items()}
        uses = {layer: self.ops.expert_uses(bank) for layer, bank in banks.items()}
        tiers = {layer: np.full(count, here[layer]) for layer, count in counts.items()}
        return map_of(counts, tiers, {layer: found for layer, found in uses.items() if found})

    def status(self) -> dict[str, object]:
        """See `Experts.status`."""
        found = {"bytes": self.ops.expert_bytes(), "prefetched": self.paging.asked}
        return {name: value for name, value in found.items() if value}
