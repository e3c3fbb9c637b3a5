"""embed in C++ (csrc/products_compute.cpp)."""

from collections.abc import Sequence

import torch

from strata.kernels import _native
from strata.kernels.embed.naive import table_cols
from strata.kernels.native import Native, check
from strata.kernels.views import Weight


def embed(native: Native, ids: torch.Tensor, shards: Sequence[Weight]) -> torch.Tensor:
    """See Ops.embed. ValueError when ids are not int64 [T], or the shards' widths or planes do not fit."""
    check("embed: ids", ids, torch.int64, None)
    y = native.empty(ids.shape[0], table_cols(shards))
    described = [native.weight(shard) for shard in shards]
    _native.embed(native.handle, described, ids.data_ptr(), ids.shape[0], y.data_ptr())
    return y
