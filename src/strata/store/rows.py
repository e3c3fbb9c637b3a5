"""Large tables of rows of which a step reads a few: n-gram embeddings, whole or in shards."""

from collections.abc import Sequence

import torch

from strata.kernels.ops import Ops
from strata.kernels.views import Weight


class RowTable:
    """Shards that together are one matrix; rows are numbered through all shards in order."""

    def __init__(self, shards: Sequence[Weight]) -> None:
        self.shards = tuple(shards)
        self.cols = shards[0].cols
        self.rows = sum(s.rows for s in shards)

    def gather(self, ops: Ops, ids: torch.Tensor) -> torch.Tensor:
        """Rows `ids` (int64 [N]) decoded -> float32 [N, cols]; IndexError when one is outside the table."""
        return ops.embed(ids, self.shards)
