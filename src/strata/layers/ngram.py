"""PLE: hashed n-gram embeddings, gated into the residual streams (Qwen4ExpText, models file of transformers 5.24)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.ops import Ops
from strata.kernels.views import Weight
from strata.layers.batch import Batch
from strata.layers.norm import RmsNorm
from strata.state.journal import LayerJournal
from strata.state.sequence import LayerState
from strata.store.rows import RowTable

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NgramHash:
    """Exact integers: mix_n = t0 m0 ^ t1 m1 ^ ..; row of head h = mix mod size_h + offset_h.

    A context token at or beyond an end-of-text token (not counting the current one), or before the sequence, is that
    token. Heads come in order of n: first all 2-gram heads, then the 3-gram heads.
    """

    multipliers: Sequence[int]
    sizes: Sequence[int]
    offsets: Sequence[int]
    end_of_text: int

    def context(self, tokens: Ids, slots: Sequence[int], positions: Sequence[int]) -> Ids:
        """tokens [slots, context] -> [T, ngram]: the current token, the one before it, and so on."""
        out = np.empty((len(slots), len(self.multipliers)), dtype=np.int64)
        for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
            cut = False
            out[row, 0] = tokens[slot, position]
            for back in range(1, len(self.multipliers)):
                cut = cut or position < back or tokens[slot, position - back] == self.end_of_text
                out[row, back] = self.end_of_text if cut else tokens[slot, position - back]
        return out

    def rows(self, context: Ids) -> Ids:
        """[T, ngram] -> table rows [T, heads]; products stay below 2^63 by the choice of the multipliers."""
        ngram = len(self.multipliers)
        per = len(self.sizes) // (ngram - 1)
        out = np.empty((context.shape[0], len(self.sizes)), dtype=np.int64)
        mix = context[:, 0] * np.int64(self.multipliers[0])
        for order in range(1, ngram):
            mix = mix ^ (context[:, order] * np.int64(self.multipliers[order]))
            for head in range((order - 1) * per, order * per):
                out[:, head] = mix % self.sizes[head] + self.offsets[head]
        return out


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
        context = self.hash.context(batch.states.tokens, rows.slot.tolist(), rows.position.tolist())
        ids = torch.from_numpy(self.hash.rows(context))
        batch.report(f"{self.name}.rows", ids=batch.tokens, y=ids)
        e = self.table.gather(ops, ids.view(-1)).view(len(ids), -1)
        key, value = ops.linear(e, (self.key, self.value))
        gated = self.gate(ops, self.norm_key(ops, key), self.norm_query(ops, residual), value)
        columns = self.conv_input(ops, gated)
        mixed = ops.causal_conv(columns, self.conv, state.ngram, rows, self.dilation)
        if journal is not None:
            journal.ngram = columns
        y = residual + gated + mixed
        batch.report(self.name, x=residual, y=y)
        return y

    def conv_input(self, ops: Ops, gated: torch.Tensor) -> torch.Tensor:
        """norm_c(u) [T, n * hidden]."""
        return self.norm_conv(ops, gated)

    def gate(self, ops: Ops, key: torch.Tensor, query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """u [T, n * hidden]: the value scaled per stream by how well key and query agree."""
        n, hidden = self.streams, value.shape[1]
        agree = ops.row_dot(key.view(-1, n, hidden), query.view(-1, n, hidden)) / math.sqrt(hidden)
        strength = ops.activate("sigmoid", self.signed_root(agree))
        return (strength.unsqueeze(-1) * value.unsqueeze(1)).view(-1, n * hidden)

    def signed_root(self, agree: torch.Tensor) -> torch.Tensor:
        """sign(s) sqrt(max(|s|, 1e-6))"""
        return agree.sign() * agree.abs().clamp_min(1e-6).sqrt()
