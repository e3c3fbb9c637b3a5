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
        counts = torch.tensor([0, *(s.rows for s in shards)])
        self.starts = counts.cumsum(0)[:-1]
        """First row of each shard."""

    def gather(self, ops: Ops, ids: torch.Tensor) -> torch.Tensor:
        """Rows `ids` (int64 [N]) decoded -> float32 [N, cols]; IndexError when one is outside the table."""
        if len(self.shards) == 1:
            return ops.embed(ids, self.shards[0])
        if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < self.rows):
            raise IndexError(f"rows {int(ids.min())}..{int(ids.max())} of a table of {self.rows}")
        out = torch.empty(len(ids), self.cols)
        # Only the shards that are asked for: published tables come in hundreds of them.
        shard_of = torch.bucketize(ids, self.starts, right=True) - 1
        for number in sorted(set(shard_of.tolist())):
            here = shard_of == number
            out[here] = ops.embed(ids[here] - self.starts[number], self.shards[number])
        return out
