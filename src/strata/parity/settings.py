"""Sizes and conventions of one model, as the reference sees them; filled by `reference_gguf` or `reference_hf`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["attention", "delta_net"]


def kinds_of(recurrent: Iterable[bool]) -> tuple[Kind, ...]:
    """The mixer of every layer, by whether it is recurrent."""
    found: list[Kind] = ["delta_net" if r else "attention" for r in recurrent]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotation of the first `dims` values of a head."""

    dims: int
    theta: float
    pairs: bool
    """Value 2i goes with 2i + 1 (llama GGUF files); otherwise i with i + dims / 2."""


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """A Gated DeltaNet."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    tiled: bool
    """Value head h uses key head h mod key_heads; otherwise h // (value_heads / key_heads)."""
    sigmoid_gate: bool
    """The output gate is a sigmoid (qwen4_exp); otherwise silu."""


@dataclass(frozen=True, slots=True)
class IndexShape:
    """QSA's indexer."""

    heads: int
    dim: int
    blocks: int
    """Complete blocks that a query keeps at most."""
    ratio: int
    """Tokens per block."""


@dataclass(frozen=True, slots=True)
class NgramShape:
    """The hash of the n-gram embedding (PLE)."""

    layers: tuple[int, ...]
    """Decoder layers that have one, counted from 0."""
    size: int
    heads: int
    """Hash heads per n-gram length."""
    multipliers: tuple[int, ...]
    rows: tuple[int, ...]
    """Table rows of every hash head (a prime)."""
    offsets: tuple[int, ...]
    end: int
    """The id that cuts the context."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the forward pass needs beside the weights."""

    architecture: str
    """GGUF's name: qwen3moe, qwen3next, qwen35moe, qwen4exp, llama."""
    vocabulary: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rotary: Rotary
    kinds: tuple[Kind, ...]
    """The mixer of every layer."""
    output_gate: bool
    experts: int
    """Routed experts per layer; 0 for a dense feed-forward."""
    top_k: int
    renormalise: bool
    delta: DeltaShape | None = None
    index: IndexShape | None = None
    indexed: tuple[bool, ...] = ()
    """Which layers select positions; empty when none does."""
    streams: int = 0
    """Hyper-connection streams; 0 for a plain residual."""
    ngram: NgramShape | None = None

    @property
    def layers(self) -> int:
        """Decoder layers, without draft heads."""
        return len(self.kinds)

    def selects(self, layer: int) -> bool:
        """Whether the attention of `layer` is restricted to selected positions."""
        return bool(self.indexed) and self.indexed[layer]
