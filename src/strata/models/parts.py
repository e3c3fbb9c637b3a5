"""Assembling the blocks that several architectures have in common from a source's tensors."""

import itertools
from dataclasses import dataclass

from strata.experts.cpu import CpuExperts
from strata.experts.placed import PlacedExperts
from strata.experts.protocol import Experts
from strata.kernels.ops import HeadPairing, Ops
from strata.kernels.views import ExpertBank, Weight
from strata.layers.attention import Attention
from strata.layers.delta_net import DeltaNet, PackedInputs, SeparateInputs
from strata.layers.moe import Dense, GatedFeedForward, Moe, SharedExpert
from strata.layers.norm import RmsNorm
from strata.layers.rope import Rope
from strata.layers.sparse_attention import Indexer
from strata.models.config import DecoderConfig, DeltaConfig
from strata.models.source import Source, slice_rows
from strata.state.layout import DeltaLayout, KvLayout
from strata.store.experts import ExpertStore


@dataclass(frozen=True, slots=True)
class Parts:
    """A source together with the sizes that its tensors must have."""

    source: Source
    config: DecoderConfig

    def norm(self, name: str, size: int | None = None, group: int | None = None) -> RmsNorm:
        """A norm over `size` values (default: the hidden size), its mean over groups of `group`."""
        n = self.config.hidden if size is None else size
        return RmsNorm(self.source.vector(name, n), self.config.eps, n if group is None else group)

    def attention(self, layer: int, rope: Rope, gated: bool, normed: bool, indexer: Indexer | None = None) -> Attention:
        """The attention of one layer; q, k, v may be fused row-wise as attn_qkv."""
        c, b = self.config, f"blk.{layer}."
        wide = c.heads * c.head_dim * (2 if gated else 1)
        narrow = c.kv_heads * c.head_dim
        q, k, v = self.qkv(b, wide, narrow)
        return Attention(
            name=f"{b}attention",
            q=q,
            k=k,
            v=v,
            out=self.source.weight(b + "attn_output", c.hidden, c.heads * c.head_dim),
            q_norm=self.norm(b + "attn_q_norm", c.head_dim) if normed else None,
            k_norm=self.norm(b + "attn_k_norm", c.head_dim) if normed else None,
            rope=rope,
            heads=c.heads,
            kv_heads=c.kv_heads,
            head_dim=c.head_dim,
            gated=gated,
            indexer=indexer,
        )

    def qkv(self, block: str, wide: int, narrow: int) -> tuple[Weight, Weight, Weight]:
        """Query, key and value matrices."""
        hidden = self.config.hidden
        if self.source.has(block + "attn_qkv"):
            both = self.source.weight(block + "attn_qkv", wide + 2 * narrow, hidden)
            cuts = (0, wide, wide + narrow, wide + 2 * narrow)
            q, k, v = (slice_rows(both, a, b) for a, b in itertools.pairwise(cuts))
            return q, k, v
        q = self.source.weight(block + "attn_q", wide, hidden)
        k = self.source.weight(block + "attn_k", narrow, hidden)
        return q, k, self.source.weight(block + "attn_v", narrow, hidden)

    def delta_net(
        self, layer: int, layout: DeltaLayout, inputs: SeparateInputs | PackedInputs, sigmoid: bool
    ) -> DeltaNet:
        """The gated delta net of one layer."""
        s, b = self.source, f"blk.{layer}."
        inner = layout.value_heads * layout.value_dim
        return DeltaNet(
            name=f"{b}delta_net",
            inputs=inputs,
            conv=s.vector(b + "ssm_conv1d", layout.channels, layout.history + 1),
            decay_rate=s.vector(b + "ssm_a", layout.value_heads),
            dt_bias=s.vector(b + "ssm_dt.bias", layout.value_heads),
            norm=self.norm(b + "ssm_norm", layout.value_dim),
            out=s.weight(b + "ssm_out", self.config.hidden, inner),
            gate="sigmoid" if sigmoid else "silu",
            layout=layout,
        )

    def separate_inputs(self, layer: int, d: DeltaConfig) -> SeparateInputs:
        """Four projections of the delta net."""
        s, b, hidden = self.source, f"blk.{layer}.", self.config.hidden
        return SeparateInputs(
            qkv=s.weight(b + "attn_qkv", d.channels, hidden),
            z=s.weight(b + "attn_gate", d.value_heads * d.value_dim, hidden),
            b=s.weight(b + "ssm_beta", d.value_heads, hidden),
            a=s.weight(b + "ssm_alpha", d.value_heads, hidden),
        )

    def feed_forward(self, prefix: str, suffix: str, width: int) -> GatedFeedForward:
        """gate, up, down under PREFIX + ffn_{gate,up,down} + SUFFIX."""
        s, hidden = self.source, self.config.hidden
        return GatedFeedForward(
            s.weight(f"{prefix}ffn_gate{suffix}", width, hidden),
            s.weight(f"{prefix}ffn_up{suffix}", width, hidden),
            s.weight(f"{prefix}ffn_down{suffix}", hidden, width),
        )

    def moe(self, layer: int, experts: Experts) -> Moe:
        """Router, experts and shared expert of one layer."""
        c, b = self.config, f"blk.{layer}."
        shared = None
        if c.shared_width:
            gate = self.source.weight(b + "ffn_gate_inp_shexp", 1, c.hidden)
            shared = SharedExpert(self.feed_forward(b, "_shexp", c.shared_width), gate)
        router = self.source.weight(b + "ffn_gate_inp", c.experts, c.hidden)
        return Moe(f"blk.{layer}", layer, router, experts, c.top_k, c.renormalise, shared)

    def dense(self, layer: int) -> Dense:
        """The dense feed-forward block of one layer."""
        return Dense(f"blk.{layer}", self.feed_forward(f"blk.{layer}.", "", self.config.dense_width))

    def store(self) -> ExpertStore:
        """All layers' experts."""
        c = self.config
        banks: dict[int, ExpertBank] = {}
        for layer in range(c.layers if c.experts else 0):
            banks[layer] = self.source.experts(layer, c.experts, c.expert_width, c.hidden)
        return ExpertStore(banks)

    def kv_layout(self) -> KvLayout:
        """What an attention layer keeps per token."""
        return KvLayout(self.config.kv_heads, self.config.head_dim)


def delta_layout(d: DeltaConfig, pairing: HeadPairing) -> DeltaLayout:
    """What a delta-net layer keeps per sequence. The l2 norms of q and k add 1e-6, whatever the
    model's eps.
    """
    return DeltaLayout(d.channels, d.taps - 1, d.key_heads, d.value_heads, d.key_dim, d.value_dim, pairing, 1e-6)


def placed_experts(ops: Ops, store: ExpertStore) -> PlacedExperts:
    """Experts by the operations alone at first; another placement of the same store may take over."""
    return PlacedExperts(CpuExperts(ops, store))
