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
        if len(self.shards) == 1:
            return ops.embed(ids, self.shards[0])
        if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < self.rows):
            raise IndexError(f"rows {int(ids.min())}..{int(ids.max())} of a table of {self.rows}")
        out = torch.empty(len(ids), self.cols)
        start = 0
        for shard in self.shards:
            here = (ids >= start) & (ids < start + shard.rows)
            if bool(here.any()):
                out[here] = ops.embed(ids[here] - start, shard)
            start += shard.rows
        return out
