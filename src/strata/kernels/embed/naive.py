"""Rows of a table: the specification."""

import numpy as np
import torch

from strata.kernels.exact import multiply
from strata.kernels.linear.naive import weight_planes
from strata.kernels.views import Weight
from strata.quant.decode import dequantise


def embed(ids: torch.Tensor, weight: Weight) -> torch.Tensor:
    """Rows `ids` (int64 [T]) of `weight` -> float32 [T, cols], times weight.scale unless that is 1.

    IndexError when an id is negative or not below the number of rows.
    """
    rows = ids.numpy()
    bad = rows[(rows < 0) | (rows >= weight.rows)]
    if len(bad):
        raise IndexError(f"row {int(bad[0])} of a table of {weight.rows} rows")
    raw, scales = weight_planes(weight)
    values = dequantise(weight.format, raw[rows], scales, rows)
    return torch.from_numpy(values if weight.scale == 1.0 else multiply(values, np.float32(weight.scale)))
