"""The drafting head of Qwen3-Next and Qwen3.5/3.6-MoE.

x   = W [ norm_e(embed(token t+1)) ; norm_h(h_t) ]        h_t after the trunk's final norm
x   = one layer of gated attention and experts
out = norm(x);  logits of token t+2 = W_out out            the next pair takes out in the place of h
"""

from dataclasses import dataclass, replace

import torch

from strata.checkpoint.metadata import Metadata
from strata.core.errors import UnsupportedError
from strata.kernels.ops import Ops
from strata.kernels.views import Weight
from strata.layers.batch import Batch
from strata.layers.norm import RmsNorm
from strata.layers.rope import Rope
from strata.models.base import Block, Model, PreNormModel, logits
from strata.models.config import DecoderConfig, gguf_decoder, hf_decoder
from strata.models.drafting import fused, own_or
from strata.models.parts import Parts
from strata.models.source import Source, some_rows
from strata.state.layout import LayerLayout


@dataclass(frozen=True, slots=True)
class HybridHead:
    """Implements `DraftHead`."""

    embedding: Weight
    embedding_norm: RmsNorm
    trunk_norm: RmsNorm
    """The trunk's final norm."""
    hidden_norm: RmsNorm
    fuse: Weight
    block: Block
    norm: RmsNorm
    output: Weight
    layouts: tuple[LayerLayout, ...]
    width: int
    tokens: torch.Tensor | None = None

    def narrowed(self, tokens: torch.Tensor) -> "HybridHead":
        """See `DraftHead.narrowed`."""
        return replace(self, output=some_rows(self.output, tokens), tokens=tokens)

    def start(self, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """See `DraftHead.start`."""
        return self.trunk_norm(batch.ops, residual)

    def run(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """See `DraftHead.run`."""
        ops = batch.ops
        embedded = self.embedding_norm(ops, ops.embed(batch.tokens, (self.embedding,)))
        (x,) = ops.linear(ops.join([embedded, self.hidden_norm(ops, hidden)]), (self.fuse,))
        return self.norm.added(ops, *self.block(x, None, batch))[1]

    def logits(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """See `DraftHead.logits`."""
        return logits(hidden, self.output, batch)


def build_head(source: Source, meta: Metadata, model: Model, ops: Ops) -> HybridHead:
    """The head from its tensors; see `BuildHead`."""
    if not isinstance(model, PreNormModel):
        raise UnsupportedError(f"{meta.file}: a drafting head for a residual of one stream, the model has several")
    c = config_of(meta, source, model.shape.architecture)
    parts, layer = Parts(source, c), model.shape.layers
    b = f"blk.{layer}."
    model.store.add(layer, source.experts(layer, c.experts, c.expert_width, c.hidden))
    block = Block(
        name=f"blk.{layer}",
        index=layer,
        attn_norm=parts.norm(b + "attn_norm"),
        mixer=parts.attention(layer, Rope(c.rotary, c.rope_theta, "halves"), gated=True, normed=True),
        ffn_norm=parts.norm(b + "post_attention_norm"),
        ffn=parts.moe(layer, model.experts),
    )
    return HybridHead(
        embedding=own_or(source, b + "nextn.embed_tokens", model.embedding),
        embedding_norm=parts.norm(b + "nextn.enorm"),
        trunk_norm=model.norm,
        hidden_norm=parts.norm(b + "nextn.hnorm"),
        fuse=fused(source, layer, c.hidden),
        block=block,
        norm=parts.norm(b + "nextn.shared_head_norm"),
        output=own_or(source, b + "nextn.shared_head_head", model.output),
        layouts=(LayerLayout(kv=parts.kv_layout(), carry=c.hidden),),
        width=c.hidden,
    )


def config_of(meta: Metadata, source: Source, architecture: str) -> DecoderConfig:
    """The trunk's numbers, which are the head's too."""
    return gguf_decoder(meta, architecture) if source.container == "gguf" else hf_decoder(meta, 0.25, renormalise=True)
