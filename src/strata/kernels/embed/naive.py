"""Rows of a table, whole or in shards: the specification."""

from collections.abc import Sequence

import numpy as np
import torch

from strata.kernels.exact import Array32, multiply
from strata.kernels.linear.naive import weight_planes
from strata.kernels.views import Weight
from strata.quant.decode import dequantise


def embed(ids: torch.Tensor, shards: Sequence[Weight]) -> torch.Tensor:
    """Rows `ids` (int64 [T]) of the table -> float32 [T, cols], times the shard's scale unless that is 1.

    Rows are numbered through all shards in order. IndexError when an id is negative or not below the number of rows.
    """
    rows = ids.numpy()
    total = sum(shard.rows for shard in shards)
    bad = rows[(rows < 0) | (rows >= total)]
    if len(bad):
        raise IndexError(f"row {int(bad[0])} of a table of {total} rows")
    out = np.empty((len(rows), table_cols(shards)), np.float32)
    first = 0
    for shard in shards:
        here = (rows >= first) & (rows < first + shard.rows)
        if here.any():
            out[here] = shard_rows(shard, rows[here] - first)
        first += shard.rows
    return torch.from_numpy(out)


def table_cols(shards: Sequence[Weight]) -> int:
    """Columns of a table; ValueError when it has no shard or shards of different widths."""
    widths = {shard.cols for shard in shards}
    if len(widths) != 1:
        raise ValueError(f"a table of {len(shards)} shards with {sorted(widths)} columns")
    return widths.pop()


def shard_rows(shard: Weight, rows: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> Array32:
    """Rows of one shard, decoded."""
    raw, scales = weight_planes(shard)
    values = dequantise(shard.format, raw[rows], scales, rows)
    return values if shard.scale == 1.0 else multiply(values, np.float32(shard.scale))
