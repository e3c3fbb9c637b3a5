"""delta_rule in C++ (csrc/layers_delta.cpp); bits as delta_rule/naive.py."""

import math

import torch

from strata.kernels import _native
from strata.kernels.addresses import floats, held_segments, integers
from strata.kernels.native import Native
from strata.kernels.ops import HeadPairing
from strata.kernels.views import Rows


def delta_rule(
    native: Native,
    qkv: torch.Tensor,
    beta: torch.Tensor,
    decay: torch.Tensor,
    state: torch.Tensor,
    rows: Rows,
    key_heads: int,
    pairing: HeadPairing,
    eps: float,
) -> torch.Tensor:
    """See Ops.delta_rule; ValueError when shapes or segments do not fit, IndexError for an unknown slot."""
    slots, value_heads, key_dim, value_dim = state.shape
    num_rows, segments = qkv.shape[0], rows.segments.shape[0]
    if key_heads < 1 or value_heads % key_heads or pairing not in ("grouped", "tiled"):
        raise ValueError(f"delta_rule: {value_heads} value heads, {key_heads} key heads and {pairing!r} do not fit")
    out = native.empty(num_rows, value_heads, value_dim)
    _native.delta_rule(
        native.handle,
        floats("delta_rule: qkv", qkv, (num_rows, 2 * key_heads * key_dim + value_heads * value_dim)),
        floats("delta_rule: beta", beta, (num_rows, value_heads)),
        floats("delta_rule: decay", decay, (num_rows, value_heads)),
        floats("delta_rule: state", state, state.shape),
        out.data_ptr(),
        integers("delta_rule: segments", rows.segments, (segments, 3)),
        held_segments("delta_rule", rows),
        segments,
        slots,
        num_rows,
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        pairing == "tiled",
        eps,
        1.0 / math.sqrt(key_dim),
    )
    return out
