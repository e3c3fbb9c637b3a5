"""Weights from a safetensors folder: raw conventions, value heads grouped by key head."""

import re

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.parity.hf_config import Names, settings
from strata.parity.settings import Settings
from strata.parity.unpack import packed_ba, packed_qkvz
from strata.parity.weights import (
    Array,
    AttentionWeights,
    DeltaWeights,
    Gated,
    HyperWeights,
    LayerWeights,
    Matrix,
    ModelWeights,
    MoeWeights,
    NgramWeights,
    join,
)


class Loader:
    """Builds the weights of a folder."""

    def __init__(self, names: Names, s: Settings) -> None:
        self.names, self.s = names, s
        self.offset = 0.0 if s.architecture in ("qwen3moe", "llama") else 1.0

    def matrix(self, name: str) -> Matrix:
        """A linear layer's weight."""
        return self.names.matrix(self.names.full(name + ".weight"))

    def plain(self, name: str) -> Array:
        """A tensor as it is."""
        return self.names.array(self.names.full(name))

    def norm(self, name: str) -> Array:
        """A norm's weight; zero-centred in the later families."""
        return self.plain(name + ".weight") + self.offset

    def has(self, name: str) -> bool:
        """Whether the folder has a tensor."""
        return self.names.full(name) in self.names

    def attention(self, i: int) -> AttentionWeights:
        """The attention of layer i."""
        b, s = f"layers.{i}.self_attn.", self.s
        query, key, value, output = (self.matrix(f"{b}{part}_proj") for part in "qkvo")
        normed = self.has(b + "q_norm.weight")
        index_query = index_key = None
        if s.index is not None:
            both, cut = self.matrix(b + "indexer.index_qk_proj"), s.index.heads * s.index.dim
            index_query, index_key = both.take(range(cut)), both.take(range(cut, both.rows))
        return AttentionWeights(
            query=query,
            key=key,
            value=value,
            output=output,
            query_norm=self.norm(b + "q_norm") if normed else None,
            key_norm=self.norm(b + "k_norm") if normed else None,
            index_query=index_query,
            index_key=index_key,
            index_query_norm=self.norm(b + "indexer.q_layernorm") if s.index is not None else None,
            index_key_norm=self.norm(b + "indexer.k_layernorm") if s.index is not None else None,
        )

    def delta(self, i: int) -> DeltaWeights:
        """The delta net of layer i."""
        b, shape = f"layers.{i}.linear_attn.", self.s.delta
        if shape is None:
            raise ValueError("a delta net without sizes")
        if self.has(b + "in_proj_qkvz.weight"):
            qkv, gate = packed_qkvz(self.matrix(b + "in_proj_qkvz"), shape)
            beta, alpha = packed_ba(self.matrix(b + "in_proj_ba"), shape)
        else:
            qkv, gate, beta, alpha = (self.matrix(f"{b}in_proj_{part}") for part in ("qkv", "z", "b", "a"))
        return DeltaWeights(
            qkv=qkv,
            gate=gate,
            beta=beta,
            alpha=alpha,
            conv=self.plain(b + "conv1d.weight")[:, 0],
            rate=-np.exp(self.plain(b + "A_log")),
            bias=self.plain(b + "dt_bias"),
            norm=self.plain(b + "norm.weight"),
            output=self.matrix(b + "out_proj"),
        )

    def gated(self, b: str, parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> Gated:
        """gate, up and down under a prefix."""
        return Gated(*(self.matrix(b + part) for part in parts))

    def experts(self, b: str) -> tuple[Gated, ...]:
        """The routed experts: fused, one by one, or by Mixtral's names."""
        if self.has(b + "experts.gate_up_proj"):
            full = self.names.full(b + "experts.gate_up_proj")
            half = self.names.shape(full)[1] // 2
            gate, up = self.names.stack(full, 0, half), self.names.stack(full, half, half)
            down = self.names.stack(self.names.full(b + "experts.down_proj"))
            return tuple(Gated(*parts) for parts in zip(gate, up, down, strict=True))
        old = self.has(b + "experts.0.w1.weight")
        parts = ("w1", "w3", "w2") if old else ("gate_proj", "up_proj", "down_proj")
        return tuple(self.gated(f"{b}experts.{e}.", parts) for e in range(self.s.experts))

    def feed(self, i: int) -> MoeWeights | Gated:
        """Experts or a dense block."""
        b = f"layers.{i}.mlp."
        if not self.s.experts:
            return self.gated(b)
        if self.has(f"layers.{i}.block_sparse_moe.gate.weight"):
            b = f"layers.{i}.block_sparse_moe."
        shared = self.has(b + "shared_expert_gate.weight")
        return MoeWeights(
            router=self.matrix(b + "gate"),
            experts=self.experts(b),
            shared=self.gated(b + "shared_expert.") if shared else None,
            shared_gate=self.matrix(b + "shared_expert_gate") if shared else None,
        )

    def hyper(self, b: str, inject: bool) -> HyperWeights:
        """A hyper-connection read."""
        return HyperWeights(
            norm=self.norm(b + "hc_norm"),
            down=self.matrix(b + "input_mix_weight_down"),
            up=self.matrix(b + "input_mix_weight_up"),
            inject=self.matrix(b + "block_inject_weight") if inject else None,
        )

    def table(self, b: str) -> Matrix:
        """The n-gram table, whose shards are ordered by number."""
        if self.has(b + "ngram_embedding.weight"):
            return self.matrix(b + "ngram_embedding")
        pattern = re.compile(re.escape(self.names.full(b)) + r"ngram_embedding\.shard_(\d+)\.weight")
        found = [m for m in map(pattern.fullmatch, self.names.checkpoint.tensors) if m is not None]
        ordered = sorted(found, key=lambda m: int(m.group(1)))
        return join([self.names.matrix(m.group(0)) for m in ordered])

    def ngram(self, i: int) -> NgramWeights:
        """The n-gram embedding of layer i."""
        b = f"layers.{i}.ple."
        return NgramWeights(
            table=self.table(b + "ple_embedding."),
            key=self.matrix(b + "key_proj"),
            value=self.matrix(b + "value_proj"),
            key_norm=self.norm(b + "norm_key"),
            query_norm=self.norm(b + "norm_query"),
            conv_norm=self.norm(b + "norm_conv"),
            conv=self.plain(b + "conv1d.weight")[:, 0],
        )

    def layer(self, i: int) -> LayerWeights:
        """Everything of layer i."""
        b, s = f"layers.{i}.", self.s
        mixer = self.attention(i) if s.kinds[i] == "attention" else self.delta(i)
        if s.streams:
            return LayerWeights(
                mixer=mixer,
                feed=self.feed(i),
                hyper_mixer=self.hyper(b + "attn_hyper_connection.", True),
                hyper_feed=self.hyper(b + "mlp_hyper_connection.", True),
                ngram=self.ngram(i) if s.ngram is not None and i in s.ngram.layers else None,
            )
        return LayerWeights(
            mixer=mixer,
            feed=self.feed(i),
            mixer_norm=self.norm(b + "input_layernorm"),
            feed_norm=self.norm(b + "post_attention_layernorm"),
        )

    def model(self) -> ModelWeights:
        """The whole folder; a tied head is the embedding."""
        s, embedding = self.s, self.matrix("embed_tokens")
        return ModelWeights(
            embedding=embedding,
            layers=tuple(self.layer(i) for i in range(s.layers)),
            head=self.matrix("lm_head") if self.has("lm_head.weight") else embedding,
            norm=None if s.streams else self.norm("norm"),
            hyper=self.hyper("hyper_connection_mixer.", False) if s.streams else None,
        )


def load(checkpoint: Checkpoint) -> tuple[Settings, ModelWeights]:
    """Sizes and weights of a safetensors folder."""
    names = Names(checkpoint)
    found = settings(checkpoint, names)
    return found, Loader(names, found).model()
