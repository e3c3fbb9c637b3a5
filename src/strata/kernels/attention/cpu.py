"""attention in C++ (csrc/layers_attention.cpp); bits as attention/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats, integers, plane
from strata.kernels.native import Native
from strata.kernels.views import PagedPlane, Rows


def kv_heads_of(op: str, q: torch.Tensor, keys: PagedPlane) -> int:
    """KV heads of the cache; ValueError when the query heads are no multiple of them."""
    kv_heads = keys.data.shape[1]
    if kv_heads < 1 or q.shape[1] % kv_heads:
        raise ValueError(f"{op}: {q.shape[1]} query heads are no multiple of {kv_heads} KV heads")
    return kv_heads


def attention(
    native: Native, q: torch.Tensor, keys: PagedPlane, values: PagedPlane, rows: Rows, scale: float
) -> torch.Tensor:
    """See Ops.attention; ValueError when shapes do not fit, IndexError when a row sees an entry without a page."""
    num_rows, heads, dim = q.shape
    kv_heads = kv_heads_of("attention", q, keys)
    out = native.empty(num_rows, heads * dim)
    _native.attention(
        native.handle,
        floats("attention: q", q, q.shape),
        out.data_ptr(),
        plane("attention: keys", keys, (kv_heads, dim)),
        plane("attention: values", values, (kv_heads, dim)),
        integers("attention: slot", rows.slot, (num_rows,)),
        integers("attention: position", rows.position, (num_rows,)),
        num_rows,
        heads,
        kv_heads,
        dim,
        scale,
    )
    return out
