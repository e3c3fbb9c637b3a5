"""Heads that propose tokens (multi-token prediction): what every architecture's offers, and their tensors' names.

A head reads pairs (h_t, token t+1): h_t is what the trunk leaves of row t, and the row has position t. It has a layer
of the trunk's kind with a cache of its own, in the states behind the trunk's layers. From the pair it proposes token
t+2; for more of them it goes on from its own output in the place of the trunk's.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from strata.checkpoint.metadata import Metadata
from strata.kernels.ops import Ops
from strata.kernels.views import Weight
from strata.layers.batch import Batch
from strata.models.base import Model
from strata.models.source import Rule, Source, side_by_side
from strata.state.layout import LayerLayout

RULES = {
    "nextn.enorm": Rule("pre_fc_norm_embedding", "plus_one"),
    "nextn.hnorm": Rule("pre_fc_norm_hidden", "plus_one"),
    "nextn.shared_head_norm": Rule("norm", "plus_one"),
    "nextn.eh_proj": Rule("fc"),
    "nextn.hc_head_norm": Rule("hyper_connection_mixer.hc_norm", "plus_one"),
    "nextn.hc_head_down": Rule("hyper_connection_mixer.input_mix_weight_down"),
    "nextn.hc_head_up": Rule("hyper_connection_mixer.input_mix_weight_up"),
}
"""What stands beside a head's layer, in a safetensors folder below `mtp.`."""

PAIR = {"nextn.fc_embedding": Rule("fc_embedding"), "nextn.fc_hidden": Rule("fc_hidden")}
"""The two halves of nextn.eh_proj, where a folder holds them apart."""


class DraftHead(Protocol):
    """Proposes tokens from pairs of trunk rows and the tokens after them. `T` rows are pairs of any slots.

    The batch has the pairs' second tokens, their slots and the positions of their first; it comes with the memory of
    the trunk, which the head's layers (numbered on from the trunk's) are part of.
    """

    @property
    def layouts(self) -> Sequence[LayerLayout]:
        """What the head's layers remember; the first of them also carries a row of the trunk."""
        ...

    @property
    def width(self) -> int:
        """Values of a trunk row, and of a row that the head goes on from."""
        ...

    @property
    def tokens(self) -> torch.Tensor | None:
        """The tokens that it can propose, int64, increasing; None: all."""
        ...

    def narrowed(self, tokens: torch.Tensor) -> "DraftHead":
        """The same head, which proposes these tokens only: its matrix of all is what drafts read most of."""
        ...

    def start(self, residual: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The trunk's residual [T, width] after its last layer -> what `run` takes of it."""
        ...

    def run(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Rows [T, width] -> rows [T, width] to take logits of, and to go on from; the states are written to."""
        ...

    def logits(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Rows [N, width] of `run` -> logits [N, len(tokens)] of the tokens after the pairs."""
        ...


class BuildHead(Protocol):
    """A model file's second entry: the head of a model that was built, from its tensors (perhaps in a file apart)."""

    def __call__(self, source: Source, meta: Metadata, model: Model, ops: Ops) -> DraftHead:
        """Build the head; its experts join the model's."""
        ...


def fused(source: Source, layer: int, hidden: int) -> Weight:
    """The product over [embedding | hidden], however it is stored: [hidden, 2 * hidden]."""
    b = f"blk.{layer}.nextn."
    if source.has(b + "eh_proj"):
        return source.weight(b + "eh_proj", hidden, 2 * hidden)
    return side_by_side(
        source.weight(b + "fc_embedding", hidden, hidden), source.weight(b + "fc_hidden", hidden, hidden)
    )


def own_or(source: Source, name: str, shared: Weight) -> Weight:
    """The head's own matrix of the shape of the trunk's, where it has one, else the trunk's."""
    return source.weight(name, shared.rows, shared.cols) if source.has(name) else shared
