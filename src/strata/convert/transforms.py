"""What llama.cpp's converters do to the values of a safetensors folder, by architecture and tensor."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strata.checkpoint.metadata import Metadata
from strata.convert.tensors import AnyArray, Floats
from strata.models.config import DeltaConfig, hf_delta
from strata.models.source import Rule

TILED = ("qwen35moe", "qwen4exp")
"""Architectures whose files hold value heads so that head h reads key head h mod nk."""


def tile_heads(x: AnyArray, key_heads: int, dim: int, axis: int = 0) -> AnyArray:
    """Value heads grouped by key head -> tiled: place j * nk + i holds head i * r + j; `dim` entries per head."""
    moved = np.moveaxis(x, axis, 0)
    share = moved.shape[0] // (key_heads * dim)
    parts = moved.reshape(key_heads, share, dim, *moved.shape[1:]).swapaxes(0, 1)
    return np.ascontiguousarray(np.moveaxis(parts.reshape(moved.shape), 0, axis))


def adjacent_pairs(x: AnyArray, heads: int) -> AnyArray:
    """Rows of every head from split halves to adjacent pairs, the rotary layout of llama files."""
    return np.ascontiguousarray(x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape))


@dataclass(frozen=True, slots=True)
class Transform:
    """What happens to one tensor: its values, then the order of its rows, then the order of its columns."""

    values: Callable[[Floats], Floats] | None = None
    rows: Callable[[AnyArray], AnyArray] | None = None
    columns: tuple[int, int] | None = None
    """(key heads, entries per value head) to tile by."""

    @property
    def plain(self) -> bool:
        """Whether nothing happens."""
        return self.values is None and self.rows is None and self.columns is None

    def __call__(self, x: Floats) -> Floats:
        """All of it, on a whole tensor."""
        if self.values is not None:
            x = self.values(x)
        return self.ordered(x, 1, 1)

    def ordered(self, x: AnyArray, size: int, block: int) -> AnyArray:
        """The order alone, where `block` values of a row take `size` entries (blocks of a format as bytes)."""
        if self.rows is not None:
            x = self.rows(x)
        if self.columns is not None:
            keys, dim = self.columns
            x = tile_heads(x, keys, dim // block * size, axis=x.ndim - 1)
        return x

    def keeps_blocks(self, block: int) -> bool:
        """Whether blocks of `block` values are moved whole."""
        return self.values is None and (self.columns is None or self.columns[1] % block == 0)


def transform_of(arch: str, leaf: str, rule: Rule, meta: Metadata) -> Transform:
    """The transform of our `leaf` in a file of `arch`."""
    rows, columns = _order(arch, leaf, meta)
    return Transform(_VALUES[rule.transform], rows, columns)


def _order(
    arch: str, leaf: str, meta: Metadata
) -> tuple[Callable[[AnyArray], AnyArray] | None, tuple[int, int] | None]:
    if arch == "llama" and leaf in ("attn_q", "attn_k"):
        heads = meta.integer("num_attention_heads", 1, 4096)
        if leaf == "attn_k":
            heads = meta.integer("num_key_value_heads", 1, 4096, default=heads)
        return lambda x: adjacent_pairs(x, heads), None
    if arch in TILED and leaf in TILED_LEAVES:
        d = hf_delta(meta)
        if leaf == "ssm_out":
            return None, (d.key_heads, d.value_dim)
        return TILED_LEAVES[leaf](d), None
    return None, None


def _tail(d: DeltaConfig) -> Callable[[AnyArray], AnyArray]:
    keys = 2 * d.key_heads * d.key_dim
    return lambda x: np.concatenate([x[:keys], tile_heads(x[keys:], d.key_heads, d.value_dim)])


def _whole(d: DeltaConfig) -> Callable[[AnyArray], AnyArray]:
    return lambda x: tile_heads(x, d.key_heads, d.value_dim)


def _single(d: DeltaConfig) -> Callable[[AnyArray], AnyArray]:
    return lambda x: tile_heads(x, d.key_heads, 1)


TILED_LEAVES: dict[str, Callable[[DeltaConfig], Callable[[AnyArray], AnyArray]]] = {
    "attn_qkv": _tail,
    "ssm_conv1d": _tail,
    "attn_gate": _whole,
    "ssm_beta": _single,
    "ssm_alpha": _single,
    "ssm_a": _single,
    "ssm_dt.bias": _single,
    "ssm_out": _whole,
}
"""Every tensor that counts value heads, with the order of its rows (ssm_out: of its columns)."""


def _plus_one(x: Floats) -> Floats:
    return x + np.float32(1)


def _negative_exp(x: Floats) -> Floats:
    return (-np.exp(x.astype(np.float64))).astype(np.float32)


_VALUES: dict[str, Callable[[Floats], Floats] | None] = {
    "plain": None,
    "plus_one": _plus_one,
    "negative_exp": _negative_exp,
}


def unpack_qkvz(x: AnyArray, d: DeltaConfig) -> tuple[AnyArray, AnyArray]:
    """Qwen3-Next's in_proj_qkvz, per key head [q | k | v r | z r] -> ([q | k | v], z); any entries per row."""
    wide = d.value_heads // d.key_heads * d.value_dim
    per_head = x.reshape(d.key_heads, 2 * d.key_dim + 2 * wide, -1)
    cuts = (d.key_dim, 2 * d.key_dim, 2 * d.key_dim + wide)
    q, k, v, z = (p.reshape(-1, x.shape[1]) for p in np.split(per_head, cuts, axis=1))
    return np.concatenate([q, k, v]), z
