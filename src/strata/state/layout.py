"""What one layer of a model remembers about a sequence, in numbers."""

from dataclasses import dataclass

from strata.kernels.ops import HeadPairing
from strata.kernels.views import KV_BLOCK, KvType


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Keys and values of full attention: [kv_heads, head_dim] each per token."""

    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """QSA's indexer: one raw key of `dim` per token, one block key of `dim` per `ratio` tokens."""

    dim: int
    ratio: int


@dataclass(frozen=True, slots=True)
class DeltaLayout:
    """Gated delta net: the last `history` columns of `channels` before the convolution, and [heads, key, value]."""

    channels: int
    history: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    pairing: HeadPairing
    eps: float


@dataclass(frozen=True, slots=True)
class ConvLayout:
    """A bare convolution (n-gram embedding): the last `history` columns of `channels`."""

    channels: int
    history: int


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """All that a layer keeps; None where it keeps nothing of a kind."""

    kv: KvLayout | None = None
    index: IndexLayout | None = None
    delta: DeltaLayout | None = None
    ngram: ConvLayout | None = None
    carry: int = 0
    """Values of the trunk's last row, which the drafting head's next pair begins with."""

    def token_bytes(self, kv_type: KvType = "f32") -> int:
        """Bytes per token of context; an indexer's keys are float32."""
        n = 2 * self.kv.kv_heads * self.kv.head_dim if self.kv else 0
        nbytes = {"f32": 4 * n, "bf16": 2 * n, "int8": n + 4 * n // KV_BLOCK}[kv_type]
        if self.index:
            nbytes += 4 * (self.index.dim + self.index.dim // self.index.ratio)
        return nbytes

    def sequence_bytes(self) -> int:
        """Bytes per sequence, whatever its length (float32)."""
        n = 0
        if self.delta:
            d = self.delta
            n += d.channels * d.history + d.value_heads * d.key_dim * d.value_dim
        if self.ngram:
            n += self.ngram.channels * self.ngram.history
        return 4 * (n + self.carry)
