"""The drafting head of Qwen3.8-Flash-Next, on all residual streams.

R'_s = W_e norm_e(embed(token t+1)) + W_h norm_h(R_t)_s    R_t: the trunk's streams before its final read;
                                                           norm_h has one mean over all of them
R'   = one layer of attention and experts, with hyper-connections
logits of token t+2 = W_out read(R')                       a read of its own; the next pair takes R' in R's place
"""

from dataclasses import dataclass, replace

import torch

from strata.checkpoint.metadata import Metadata
from strata.core.errors import UnsupportedError
from strata.kernels.ops import Ops
from strata.kernels.views import Weight
from strata.layers.batch import Batch
from strata.layers.hyper import HyperRead
from strata.layers.norm import RmsNorm
from strata.layers.rope import Rope
from strata.models.base import Model, logits
from strata.models.drafting import fused, own_or
from strata.models.parts import Parts
from strata.models.qwen4_exp import ExpBlock, ExpModel, ExpParts, layout_of
from strata.models.qwen4_exp_config import ExpConfig, read_config
from strata.models.source import Source, some_rows
from strata.state.layout import LayerLayout


@dataclass(frozen=True, slots=True)
class ExpHead:
    """Implements `DraftHead`."""

    streams: int
    hidden: int
    embedding: Weight
    embedding_norm: RmsNorm
    hidden_norm: RmsNorm
    fuse: Weight
    block: ExpBlock
    final: HyperRead
    output: Weight
    layouts: tuple[LayerLayout, ...]
    width: int
    tokens: torch.Tensor | None = None

    def narrowed(self, tokens: torch.Tensor) -> "ExpHead":
        """See `DraftHead.narrowed`."""
        return replace(self, output=some_rows(self.output, tokens), tokens=tokens)

    def start(self, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """See `DraftHead.start`: the streams as they are."""
        return residual

    def run(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """See `DraftHead.run`."""
        ops = batch.ops
        embedded = self.embedding_norm(ops, ops.embed(batch.tokens, (self.embedding,)))
        streams = self.hidden_norm(ops, hidden).view(-1, self.streams, self.hidden)
        pairs = [part for s in range(self.streams) for part in (embedded, streams[:, s])]
        (x,) = ops.linear(ops.join(pairs).view(-1, 2 * self.hidden), (self.fuse,))
        return self.block(x.view(-1, self.width), batch).written(batch)

    def logits(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """See `DraftHead.logits`."""
        return logits(self.final.final(hidden, batch), self.output, batch)


def build_head(source: Source, meta: Metadata, model: Model, ops: Ops) -> ExpHead:
    """The head from its tensors; see `BuildHead`."""
    if not isinstance(model, ExpModel):
        raise UnsupportedError(f"{meta.file}: a drafting head for several residual streams, the model has one")
    config = read_config(meta, source, model.shape.vocabulary)
    c, layer = config.decoder, model.shape.layers
    parts = Parts(source, c)
    own, b, width = ExpParts(parts, config), f"blk.{layer}.", config.streams * c.hidden
    rope = Rope(c.rotary, c.rope_theta, "halves")
    indexer = own.indexer(layer, ratio_of(config, source, layer))
    model.store.add(layer, source.experts(layer, c.experts, c.expert_width, c.hidden))
    mixer = parts.attention(layer, rope, gated=True, normed=True, indexer=indexer)
    return ExpHead(
        streams=config.streams,
        hidden=c.hidden,
        embedding=own_or(source, b + "nextn.embed_tokens", model.embedding),
        embedding_norm=parts.norm(b + "nextn.enorm"),
        hidden_norm=parts.norm(b + "nextn.hnorm", width),
        fuse=fused(source, layer, c.hidden),
        block=own.block(layer, None, mixer, model.experts),
        final=final_read(own, source, layer, model),
        output=own_or(source, b + "nextn.shared_head_head", model.output),
        layouts=(replace(layout_of(config, parts, indexer), carry=width),),
        width=width,
    )


def ratio_of(config: ExpConfig, source: Source, layer: int) -> int:
    """Tokens per block of the head's indexer. Files give its layer a ratio of 0, and the indexer all the same."""
    return max(config.ratios) if source.has(f"blk.{layer}.indexer.q_proj") else 0


def final_read(own: ExpParts, source: Source, layer: int, model: ExpModel) -> HyperRead:
    """The head's own final read; older files apart hold one under the trunk's name, or none."""
    name = f"blk.{layer}.hyper_head"
    for prefix in (f"blk.{layer}.nextn.hc_head", "output_hc"):
        if source.has(f"{prefix}_norm"):
            return own.hyper(prefix, name, inject=False)
    return model.final
