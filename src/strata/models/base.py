"""What every architecture offers, and the pre-norm trunk that most of them share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from strata.experts.placed import PlacedExperts
from strata.kernels.ops import Ops
from strata.kernels.views import Weight
from strata.layers.attention import Attention
from strata.layers.batch import Batch
from strata.layers.delta_net import DeltaNet
from strata.layers.moe import Dense, Moe
from strata.layers.norm import RmsNorm
from strata.models.source import Source
from strata.state.layout import LayerLayout
from strata.store.experts import ExpertStore


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes that planning and serving need."""

    architecture: str
    layers: int
    hidden: int
    vocabulary: int
    context: int
    experts: int
    top_k: int


class Model(Protocol):
    """A decoder: tokens in, residual out; logits for the rows that ask for them."""

    @property
    def shape(self) -> ModelShape:
        """Sizes."""
        ...

    @property
    def layouts(self) -> Sequence[LayerLayout]:
        """What each layer remembers."""
        ...

    @property
    def store(self) -> ExpertStore:
        """The routed experts."""
        ...

    @property
    def experts(self) -> PlacedExperts:
        """Where they are computed."""
        ...

    def trunk(self, batch: Batch) -> torch.Tensor:
        """Run all layers -> the residual [T, ...] after the last layer; states are advanced.

        The caller has checked that the tokens are in the vocabulary.
        """
        ...

    def head(self, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Residual rows [N, ...] -> logits [N, vocabulary]."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """x += mixer(norm x); x += ffn(norm x)."""

    name: str
    index: int
    attn_norm: RmsNorm
    mixer: Attention | DeltaNet
    ffn_norm: RmsNorm
    ffn: Moe | Dense

    def __call__(self, x: torch.Tensor, y: torch.Tensor | None, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Residual x [T, hidden] and what is still to be added to it (None: nothing) -> the same after the layer.

        An addition goes with the norm that follows.
        """
        states = batch.states
        x, normed = self.attn_norm.added(batch.ops, x, y)
        batch.report(f"{self.name}.attn_norm", x=x, y=normed)
        state = states.layers[self.index]
        if isinstance(self.mixer, Attention):
            mixed = self.mixer(normed, batch, state)
        else:
            journal = states.journal.layers[self.index] if states.journaling else None
            mixed = self.mixer(normed, batch, state, journal)
        x, normed = self.ffn_norm.added(batch.ops, x, mixed)
        batch.report(f"{self.name}.ffn_norm", x=x, y=normed)
        return x, self.ffn(normed, batch)


@dataclass(frozen=True, slots=True)
class PreNormModel:
    """Implements `Model` for architectures whose residual is one stream."""

    shape: ModelShape
    embedding: Weight
    blocks: tuple[Block, ...]
    norm: RmsNorm
    output: Weight
    layouts: tuple[LayerLayout, ...]
    store: ExpertStore
    experts: PlacedExperts

    def trunk(self, batch: Batch) -> torch.Tensor:
        """See `Model.trunk`; the residual is [T, hidden] before the final norm."""
        x = batch.ops.embed(batch.tokens, (self.embedding,))
        batch.report("embed", y=x)
        y: torch.Tensor | None = None
        for block in self.blocks:
            x, y = block(x, y, batch)
        return x if y is None else batch.ops.add(x, y)

    def head(self, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """See `Model.head`."""
        return project(residual, self.norm, self.output, batch)


def project(residual: torch.Tensor, norm: RmsNorm, output: Weight, batch: Batch) -> torch.Tensor:
    """Final norm and vocabulary projection."""
    normed = norm(batch.ops, residual)
    batch.report("output_norm", x=residual, y=normed)
    return logits(normed, output, batch)


def logits(x: torch.Tensor, output: Weight, batch: Batch) -> torch.Tensor:
    """W_out x."""
    (y,) = batch.ops.linear(x, (output,))
    batch.report("head", x=x, y=y)
    return y


def vocabulary_of(source: Source, rows: int, hidden: int, tied: bool) -> tuple[Weight, Weight]:
    """(embedding, output projection); when `tied`, a file without the projection uses the embedding for it."""
    embedding = source.weight("token_embd", rows, hidden)
    if tied and not source.has("output"):
        return embedding, embedding
    return embedding, source.weight("output", rows, hidden)


class Build(Protocol):
    """A model file's entry: tensors and operations in, a model out."""

    def __call__(self, source: Source, ops: Ops) -> Model:
        """Build the model."""
        ...
