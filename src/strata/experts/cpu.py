"""All experts on the CPU, straight from the store's bytes."""

from collections.abc import Sequence

import torch

from strata.core.errors import UnsupportedError
from strata.kernels.ops import Ops
from strata.store.experts import ExpertStore


class CpuExperts:
    """Implements `Experts`: each distinct expert of a step is read once, for all its rows."""

    def __init__(self, ops: Ops, store: ExpertStore) -> None:
        self.ops = ops
        self.store = store

    def run(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See `Experts.run`."""
        return self.ops.experts(x, ids, weights, self.store.bank(layer))

    def prefetch(self, forecast: Sequence[tuple[int, int]]) -> None:
        """Nothing to move: the bytes are read where they lie."""

    def begin_step(self, rows: int) -> None:
        """Nothing to prepare."""

    def end_step(self) -> None:
        """Nothing to settle."""

    def resize(self, budget_bytes: int) -> int:
        """No expert is in VRAM apart from the other weights."""
        raise UnsupportedError("experts have no budget of VRAM here: all are where the other weights are")

    def status(self) -> dict[str, object]:
        """Nothing to say."""
        return {}
