"""Specification of delta_rule.

Per row and value head, with S [dk, dv]:
1. `q = l2_norm(q, eps, 1 / sqrt(dk))`, `k = l2_norm(k, eps, 1)` (norm/naive.py; the scale is computed in float64 and
   rounded to float32 once);
2. `S[i, c] = S[i, c] decay`, one rounding;
3. `m[c] = fma(S[i, c], k[i], m[c])` for i = 0 .. dk-1 in order, from +0;
4. `d[c] = beta (v[c] - m[c])`, one rounding each;
5. `S[i, c] = fma(k[i], d[c], S[i, c])`;
6. `o[c] = fma(S[i, c], q[i], o[c])` for i in order, from +0.

Of a held segment the state is what it was before.
"""

import math

import numpy as np
import torch

from strata.kernels.exact import fma
from strata.kernels.norm.naive import Array, l2_scaled
from strata.kernels.ops import HeadPairing
from strata.kernels.views import Rows, held_flags


def paired_heads(key_heads: int, value_heads: int, pairing: HeadPairing) -> list[int]:
    """Key head of every value head; ValueError when the counts do not divide or the pairing is unknown."""
    if key_heads < 1 or value_heads % key_heads:
        raise ValueError(f"delta_rule: {value_heads} value heads are no multiple of {key_heads} key heads")
    if pairing == "grouped":
        return [h // (value_heads // key_heads) for h in range(value_heads)]
    if pairing == "tiled":
        return [h % key_heads for h in range(value_heads)]
    raise ValueError(f"delta_rule: pairing {pairing!r} is neither 'grouped' nor 'tiled'")


def _advance(state: Array, row: tuple[Array, Array, Array], beta: Array, decay: Array) -> Array:
    """Steps 2 to 6 for all heads: state [nv, dk, dv] in place; row: q, k [nv, dk], v [nv, dv] -> o [nv, dv]."""
    q, k, v = row
    with np.errstate(all="ignore"):
        state *= decay[:, None, None]
    m = np.zeros_like(v)
    for i in range(k.shape[1]):
        m = fma(state[:, i], k[:, i, None], m)
    with np.errstate(all="ignore"):
        d = beta[:, None] * (v - m)
    state[:] = fma(k[:, :, None], d[:, None, :], state)
    o = np.zeros_like(v)
    for i in range(k.shape[1]):
        o = fma(state[:, i], q[:, i, None], o)
    return o


def delta_rule(
    qkv: torch.Tensor,
    beta: torch.Tensor,
    decay: torch.Tensor,
    state: torch.Tensor,
    rows: Rows,
    key_heads: int,
    pairing: HeadPairing,
    eps: float,
) -> torch.Tensor:
    """See Ops.delta_rule."""
    value_heads, key_dim, value_dim = (int(n) for n in state.shape[1:])
    served_by = paired_heads(key_heads, value_heads, pairing)
    keys_end = 2 * key_heads * key_dim
    num_rows = int(qkv.shape[0])
    if qkv.shape[1] != keys_end + value_heads * value_dim or beta.shape != decay.shape:
        raise ValueError(f"delta_rule: qkv {tuple(qkv.shape)} does not fit state {tuple(state.shape)}")
    source, memory = qkv.numpy(), state.numpy()
    halves = source[:, :keys_end].reshape(num_rows, 2, key_heads, key_dim)
    q = l2_scaled(halves[:, 0], eps, 1.0 / math.sqrt(key_dim))[:, served_by]
    k = l2_scaled(halves[:, 1], eps, 1.0)[:, served_by]
    v = source[:, keys_end:].reshape(num_rows, value_heads, value_dim)
    out = np.empty((num_rows, value_heads, value_dim), np.float32)
    for (slot, first, length), held in zip(rows.segments.tolist(), held_flags(rows), strict=True):
        here = memory[slot].copy() if held else memory[slot]
        for t in range(first, first + length):
            out[t] = _advance(here, (q[t], k[t], v[t]), beta.numpy()[t], decay.numpy()[t])
    return torch.from_numpy(out)
