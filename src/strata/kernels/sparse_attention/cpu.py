"""select_blocks and sparse_attention in C++ (csrc/layers_attention.cpp); bits as sparse_attention/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import float_plane, floats, integers, plane
from strata.kernels.attention.cpu import kv_heads_of
from strata.kernels.native import Native
from strata.kernels.views import PagedPlane, Rows


def select_blocks(
    native: Native, q: torch.Tensor, block_keys: PagedPlane, rows: Rows, ratio: int, budget: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.select_blocks; ValueError when shapes do not fit, IndexError when a block lies on no page."""
    num_rows, heads, dim = q.shape
    if ratio < 1 or budget < 0:
        raise ValueError(f"select_blocks: ratio {ratio} must be at least 1 and budget {budget} at least 0")
    positions = native.empty(num_rows, (budget + 1) * ratio, dtype=torch.int32)
    count = native.empty(num_rows, dtype=torch.int32)
    _native.select_blocks(
        native.handle,
        floats("select_blocks: q", q, q.shape),
        float_plane("select_blocks: block_keys", block_keys, (dim,)),
        integers("select_blocks: slot", rows.slot, (num_rows,)),
        integers("select_blocks: position", rows.position, (num_rows,)),
        num_rows,
        heads,
        dim,
        ratio,
        budget,
        positions.data_ptr(),
        count.data_ptr(),
    )
    return positions, count


def sparse_attention(
    native: Native,
    q: torch.Tensor,
    keys: PagedPlane,
    values: PagedPlane,
    rows: Rows,
    scale: float,
    positions: torch.Tensor,
    count: torch.Tensor,
) -> torch.Tensor:
    """See Ops.sparse_attention; ValueError when shapes do not fit, IndexError when a position lies on no page."""
    num_rows, heads, dim = q.shape
    kv_heads = kv_heads_of("sparse_attention", q, keys)
    width = positions.shape[1]
    out = native.empty(num_rows, heads * dim)
    _native.sparse_attention(
        native.handle,
        floats("sparse_attention: q", q, q.shape),
        out.data_ptr(),
        plane("sparse_attention: keys", keys, (kv_heads, dim)),
        plane("sparse_attention: values", values, (kv_heads, dim)),
        integers("sparse_attention: slot", rows.slot, (num_rows,)),
        integers("sparse_attention: positions", positions, (num_rows, width)),
        integers("sparse_attention: count", count, (num_rows,)),
        width,
        num_rows,
        heads,
        kv_heads,
        dim,
        scale,
    )
    return out
