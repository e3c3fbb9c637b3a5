"""PLE: hashed n-gram embeddings, gated into the residual streams (Qwen4ExpText, models file of transformers 5.24)."""

import math
from dataclasses import dataclass

import torch

from strata.kernels.ops import Ops
from strata.kernels.views import NgramHash, Weight
from strata.layers.batch import Batch
from strata.layers.norm import RmsNorm
from strata.state.journal import LayerJournal
from strata.state.sequence import LayerState
from strata.store.rows import RowTable


@dataclass(frozen=True, slots=True)
class NgramEmbedding:
    """R + u + silu(conv(norm_c(u))) with u_s = sigmoid(signed sqrt(key_s . query_s / sqrt(H))) * value.

    key = norm_k(W_key e), value = W_val e, query = norm_q(R), e the concatenated rows of the hash heads. The
    convolution is depthwise and causal with dilation n (the n-gram size).
    """

    name: str
    hash: NgramHash
    table: RowTable
    key: Weight
    value: Weight
    norm_key: RmsNorm
    norm_query: RmsNorm
    norm_conv: RmsNorm
    conv: torch.Tensor
    dilation: int
    streams: int

    def __call__(
        self, residual: torch.Tensor, batch: Batch, state: LayerState, journal: LayerJournal | None
    ) -> torch.Tensor:
        """R [T, n * hidden] -> R with the n-gram embedding added."""
        ops, rows = batch.ops, batch.rows
        assert state.ngram is not None
        ids = self.table_rows(batch)
        batch.report(f"{self.name}.rows", ids=batch.tokens, y=ids)
        e = self.table.gather(ops, ids.view(-1)).view(len(ids), -1)
        key, value = ops.linear(e, (self.key, self.value))
        gated = self.gate(ops, self.norm_key(ops, key), self.norm_query(ops, residual), value)
        columns = self.conv_input(ops, gated)
        mixed = ops.causal_conv(columns, self.conv, state.ngram, rows, self.dilation)
        if journal is not None:
            journal.ngram = columns
        y = ops.add(ops.add(residual, gated), mixed)
        batch.report(self.name, x=residual, y=y)
        return y

    def conv_input(self, ops: Ops, gated: torch.Tensor) -> torch.Tensor:
        """norm_c(u) [T, n * hidden]."""
        return self.norm_conv(ops, gated)

    def gate(self, ops: Ops, key: torch.Tensor, query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """u [T, n * hidden]: the value scaled per stream by how well key and query agree."""
        n, hidden = self.streams, value.shape[1]
        agree = ops.row_dot(key.view(-1, n, hidden), query.view(-1, n, hidden))
        strength = ops.activate("sigmoid", self.signed_root(ops, ops.divide(agree, math.sqrt(hidden))))
        return ops.spread(strength, value)

    def signed_root(self, ops: Ops, agree: torch.Tensor) -> torch.Tensor:
        """sign(s) sqrt(max(|s|, 1e-6))"""
        return ops.signed_root(agree, 1e-6)

    def table_rows(self, batch: Batch) -> torch.Tensor:
        """Rows of the table for every row of the step: int64 [T, heads]."""
        return batch.ops.ngram_rows(batch.states.token_ids, batch.rows, self.hash)
