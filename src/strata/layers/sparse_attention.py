"""QSA: a small indexer chooses which blocks of tokens a query attends to (Qwen4ExpText, transformers 5.24)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from strata.kernels.views import Weight
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
    rope: Rope
    heads: int
    dim: int
    ratio: int
    budget: int

    @property
    def inputs(self) -> tuple[Weight, Weight]:
        """The matrices that read x."""
        return self.q, self.k

    def __call__(
        self, products: Sequence[torch.Tensor], batch: Batch, state: LayerState
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The products of `inputs` with x -> positions int32 [T, M] (increasing, -1 beyond count), count int32 [T]."""
        ops, rows = batch.ops, batch.rows
        assert state.raw_keys is not None and state.block_keys is not None
        q, raw = products
        q, norm, angles = q.view(-1, self.heads, self.dim), self.q_norm, batch.angles(self.rope)
        q = ops.index_inputs(q, raw, norm.weight, norm.eps, angles, self.rope.layout, state.raw_keys, rows)
        self.complete_blocks(batch, state)
        return ops.select_blocks(q, state.block_keys, rows, self.ratio, self.budget)

    def complete_blocks(self, batch: Batch, state: LayerState) -> None:
        """Cache the key of every block whose last token is in this step."""
        assert state.raw_keys is not None and state.block_keys is not None
        planes, norm, rope = (state.raw_keys, state.block_keys), self.k_norm, self.rope
        batch.ops.complete_blocks(*planes, batch.rows, self.ratio, norm.weight, norm.eps, rope.frequencies, rope.layout)
