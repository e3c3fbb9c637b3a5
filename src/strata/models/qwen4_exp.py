"""Qwen3.8-Flash-Next, text part (transformers Qwen4ExpForCausalLM; GGUF architecture qwen4exp).

No layer norms: the residual is n streams, read and written through hyper-connections.

    R = n copies of embed(ids)
    per layer:  R = R + PLE(R, ids)                        on the n-gram layer(s) only, first
                m, w = read_attn(R);  R_s += w_s mixer(m)  mixer: gated delta net, or QSA attention
                m, w = read_mlp(R);   R_s += w_s MoE(m)
    logits = W_out read_final(R)
"""

from dataclasses import dataclass, replace

import torch

from strata.checkpoint.metadata import Metadata
from strata.core.errors import UnsupportedError
from strata.experts.placed import PlacedExperts
from strata.experts.protocol import Experts
from strata.kernels.ops import HeadPairing, Ops
from strata.kernels.views import NgramHash, Weight
from strata.layers.attention import Attention
from strata.layers.batch import Batch
from strata.layers.delta_net import DeltaNet
from strata.layers.hyper import HyperRead, Unwritten
from strata.layers.moe import Moe
from strata.layers.ngram import NgramEmbedding
from strata.layers.norm import RmsNorm
from strata.layers.rope import Rope
from strata.layers.sparse_attention import Indexer
from strata.models import hybrid
from strata.models.base import ModelShape, logits, vocabulary_of
from strata.models.parts import Parts, delta_layout, placed_experts
from strata.models.qwen4_exp_config import ExpConfig, read_config
from strata.models.source import Rule, Source
from strata.state.layout import ConvLayout, IndexLayout, LayerLayout
from strata.store.experts import ExpertStore

ARCHITECTURE = "qwen4exp"
HF_TYPES = ("qwen4_exp", "qwen4_exp_text")

HYPER = {
    "norm": Rule("hc_norm", "plus_one"),
    "down": Rule("input_mix_weight_down"),
    "up": Rule("input_mix_weight_up"),
    "inject": Rule("block_inject_weight"),
}


def _hyper_rules(ours: str, theirs: str) -> dict[str, Rule]:
    return {f"{ours}_{k}": Rule(f"{theirs}.{r.leaf}", r.transform) for k, r in HYPER.items()}


RULES = (
    hybrid.RULES
    | {
        "attn_qkv": Rule("linear_attn.in_proj_qkv"),
        "attn_gate": Rule("linear_attn.in_proj_z"),
        "ssm_beta": Rule("linear_attn.in_proj_b"),
        "ssm_alpha": Rule("linear_attn.in_proj_a"),
        "indexer.q_proj": Rule("self_attn.indexer.index_qk_proj", rows="head"),
        "indexer.k_proj": Rule("self_attn.indexer.index_qk_proj", rows="tail"),
        "indexer.q_norm": Rule("self_attn.indexer.q_layernorm", "plus_one"),
        "indexer.k_norm": Rule("self_attn.indexer.k_layernorm", "plus_one"),
        "ple_key": Rule("ple.key_proj"),
        "ple_value": Rule("ple.value_proj"),
        "ple_norm_key": Rule("ple.norm_key", "plus_one"),
        "ple_norm_query": Rule("ple.norm_query", "plus_one"),
        "ple_norm_conv": Rule("ple.norm_conv", "plus_one"),
        "ple_conv1d": Rule("ple.conv1d"),
    }
    | _hyper_rules("hc_attn", "attn_hyper_connection")
    | _hyper_rules("hc_ffn", "mlp_hyper_connection")
    | _hyper_rules("output_hc", "model.hyper_connection_mixer")
)
EXPERTS_AT = hybrid.EXPERTS_AT
EXPERT_LEAVES = hybrid.EXPERT_LEAVES


@dataclass(frozen=True, slots=True)
class ExpBlock:
    """One layer: n-gram embedding where it has one, then mixer and experts through hyper-connections."""

    index: int
    ngram: NgramEmbedding | None
    attn_hyper: HyperRead
    mixer: Attention | DeltaNet
    ffn_hyper: HyperRead
    moe: Moe

    def __call__(self, residual: torch.Tensor | Unwritten, batch: Batch) -> Unwritten:
        """R [T, n * hidden] -> R"""
        states = batch.states
        state = states.layers[self.index]
        journal = states.journal.layers[self.index] if states.journaling else None
        if self.ngram is not None:
            written = residual.written(batch) if isinstance(residual, Unwritten) else residual
            residual = self.ngram(written, batch, state, journal)
        residual, mixed, gates = self.attn_hyper.read(residual, batch)
        if isinstance(self.mixer, Attention):
            y = self.mixer(mixed, batch, state)
        else:
            y = self.mixer(mixed, batch, state, journal)
        residual, mixed, gates = self.ffn_hyper.read(Unwritten(self.attn_hyper, residual, y, gates), batch)
        return Unwritten(self.ffn_hyper, residual, self.moe(mixed, batch), gates)


@dataclass(frozen=True, slots=True)
class ExpModel:
    """Implements `Model`; the residual between trunk and head is all streams [T, n * hidden]."""

    shape: ModelShape
    streams: int
    embedding: Weight
    blocks: tuple[ExpBlock, ...]
    final: HyperRead
    output: Weight
    layouts: tuple[LayerLayout, ...]
    store: ExpertStore
    experts: PlacedExperts

    def trunk(self, batch: Batch) -> torch.Tensor:
        """See `Model.trunk`."""
        x = batch.ops.embed(batch.tokens, (self.embedding,))
        batch.report("embed", y=x)
        residual: torch.Tensor | Unwritten = batch.ops.join([x] * self.streams)
        for block in self.blocks:
            residual = block(residual, batch)
        return residual.written(batch) if isinstance(residual, Unwritten) else residual

    def head(self, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """See `Model.head`."""
        return logits(self.final.final(residual, batch), self.output, batch)


@dataclass(frozen=True, slots=True)
class ExpParts:
    """Builds the parts that only this architecture has."""

    parts: Parts
    config: ExpConfig

    def hyper(self, prefix: str, name: str, inject: bool) -> HyperRead:
        """Hyper-connection under PREFIX_{norm,down,up,inject}."""
        c, s, hidden = self.config, self.parts.source, self.config.decoder.hidden
        wide = c.streams * hidden
        return HyperRead(
            name=name,
            norm=RmsNorm(s.vector(f"{prefix}_norm", wide), c.decoder.eps, hidden),
            down=s.weight(f"{prefix}_down", c.low_rank, wide),
            up=s.weight(f"{prefix}_up", wide, c.low_rank),
            inject=s.weight(f"{prefix}_inject", c.streams, wide) if inject else None,
            streams=c.streams,
        )

    def block(
        self, layer: int, ngram: NgramEmbedding | None, mixer: Attention | DeltaNet, experts: Experts
    ) -> ExpBlock:
        """A layer around its mixer."""
        return ExpBlock(
            index=layer,
            ngram=ngram,
            attn_hyper=self.hyper(f"blk.{layer}.hc_attn", f"blk.{layer}.hyper_attn", inject=True),
            mixer=mixer,
            ffn_hyper=self.hyper(f"blk.{layer}.hc_ffn", f"blk.{layer}.hyper_ffn", inject=True),
            moe=self.parts.moe(layer, experts),
        )

    def indexer(self, layer: int, ratio: int) -> Indexer | None:
        """QSA's indexer over blocks of `ratio` tokens, or None where it is 0: the file says that attention is dense."""
        c, s, b = self.config, self.parts.source, f"blk.{layer}.indexer."
        if not ratio:
            return None
        return Indexer(
            q=s.weight(b + "q_proj", c.index_heads * c.index_dim, c.decoder.hidden),
            k=s.weight(b + "k_proj", c.index_dim, c.decoder.hidden),
            q_norm=self.parts.norm(b + "q_norm", c.index_dim),
            k_norm=self.parts.norm(b + "k_norm", c.index_dim),
            heads=c.index_heads,
            dim=c.index_dim,
            ratio=ratio,
            budget=c.index_budget // ratio,
        )

    def ngram(self, layer: int, hashing: NgramHash) -> NgramEmbedding:
        """The n-gram embedding of one layer."""
        c, s, b = self.config, self.parts.source, f"blk.{layer}."
        hidden, wide = c.decoder.hidden, c.streams * c.decoder.hidden
        cols = c.ngram_row * len(hashing.sizes)
        needed = max(o + n for o, n in zip(hashing.offsets, hashing.sizes, strict=True))
        return NgramEmbedding(
            name=f"{b}ple",
            hash=hashing,
            table=s.rows("per_layer_token_embd", layer, needed, c.ngram_row),
            key=s.weight(b + "ple_key", wide, cols),
            value=s.weight(b + "ple_value", hidden, cols),
            norm_key=self.parts.norm(b + "ple_norm_key", wide, hidden),
            norm_query=self.parts.norm(b + "ple_norm_query", wide, hidden),
            norm_conv=self.parts.norm(b + "ple_norm_conv", wide, hidden),
            conv=s.vector(b + "ple_conv1d", wide, c.ngram_taps),
            dilation=c.ngram_size,
            streams=c.streams,
        )


def layout_of(config: ExpConfig, parts: Parts, indexer: Indexer | None) -> LayerLayout:
    """What an attention layer keeps."""
    index = IndexLayout(config.index_dim, indexer.ratio) if indexer is not None else None
    return LayerLayout(kv=parts.kv_layout(), index=index)


def build(source: Source, meta: Metadata, vocabulary: int, ops: Ops) -> ExpModel:
    """The model from its tensors."""
    config = read_config(meta, source, vocabulary)
    c, parts = config.decoder, Parts(source, config.decoder)
    if config.index_dim < c.rotary:
        raise UnsupportedError(f"{meta.file}: {c.rotary} rotary dims do not fit the indexer's {config.index_dim}")
    own = ExpParts(parts, config)
    pairing: HeadPairing = "tiled" if source.container == "gguf" else "grouped"
    delta = delta_layout(config.delta, pairing)
    store = parts.store()
    experts = placed_experts(ops, store)
    rope = Rope(c.rotary, c.rope_theta, "halves")
    embedding, output = vocabulary_of(source, vocabulary, c.hidden, c.tied)
    conv = ConvLayout(config.streams * c.hidden, (config.ngram_taps - 1) * config.ngram_size)
    blocks, layouts = [], []
    for i in range(c.layers):
        attends, hashed = i in config.attention_layers, config.hashes.get(i)
        indexer = own.indexer(i, config.ratios[i]) if attends else None
        mixer = (
            parts.attention(i, rope, gated=True, normed=True, indexer=indexer)
            if attends
            else parts.delta_net(i, delta, parts.separate_inputs(i, config.delta), sigmoid=config.sigmoid_gate)
        )
        blocks.append(own.block(i, own.ngram(i, hashed) if hashed is not None else None, mixer, experts))
        layouts.append(
            replace(
                layout_of(config, parts, indexer) if attends else LayerLayout(delta=delta),
                ngram=conv if hashed is not None else None,
            )
        )
    final = own.hyper("output_hc", "output_hyper", inject=False)
    shape = ModelShape(ARCHITECTURE, c.layers, c.hidden, vocabulary, c.context, c.experts, c.top_k)
    return ExpModel(shape, config.streams, embedding, tuple(blocks), final, output, tuple(layouts), store, experts)
