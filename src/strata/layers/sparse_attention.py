"""QSA: a small indexer chooses which blocks of tokens a query attends to (Qwen4ExpText, transformers 5.24)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from strata.kernels.views import HeadNorms, IndexInputs, Weight
from strata.layers.batch import Batch
from strata.layers.norm import RmsNorm
from strata.layers.rope import Rope
from strata.state.sequence import LayerState


@dataclass(frozen=True, slots=True)
class Indexer:
    """Scores blocks of `ratio` tokens by sum_h relu(q_h . k_block) and keeps the best `budget` blocks and the open
    tail.

    A block's key is the mean of its raw keys, then norm, then rotary at the block's first position; a complete block
    never changes, so its key is cached. Raw keys are kept for the open tail (and for blocks that a rollback reopens).
    """

    q: Weight
    k: Weight
    q_norm: RmsNorm
    k_norm: RmsNorm
    heads: int
    dim: int
    ratio: int
    budget: int

    @property
    def inputs(self) -> tuple[Weight, Weight]:
        """The matrices that read x."""
        return self.q, self.k

    def made_of(self, products: Sequence[torch.Tensor], rope: Rope, state: LayerState) -> IndexInputs:
        """What `Ops.indexed_inputs` is told, from the products of `inputs` with x."""
        assert state.raw_keys is not None and state.block_keys is not None
        q, raw = products
        norms = HeadNorms(self.q_norm.weight, self.k_norm.weight, self.q_norm.eps)
        q = q.view(-1, self.heads, self.dim)
        return IndexInputs(q, raw, norms, rope.frequencies, state.raw_keys, state.block_keys, self.ratio)

    def choose(self, q: torch.Tensor, batch: Batch, state: LayerState) -> tuple[torch.Tensor, torch.Tensor]:
        """Its queries [T, heads, d] -> positions int32 [T, M] (increasing, -1 beyond count), count int32 [T]."""
        assert state.block_keys is not None
        return batch.ops.select_blocks(q, state.block_keys, batch.rows, self.ratio, self.budget)
