"""Specification of ngram_rows: exact integers (Qwen4ExpText, models file of transformers 5.24)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.views import NgramHash, Rows

Ids = npt.NDArray[np.int64]


def ngram_rows(tokens: torch.Tensor, rows: Rows, hashing: NgramHash) -> torch.Tensor:
    """See Ops.ngram_rows."""
    context = ngram_context(tokens.numpy(), rows.slot.tolist(), rows.position.tolist(), hashing)
    return torch.from_numpy(hash_rows(context, hashing))


def ngram_context(tokens: Ids, slots: Sequence[int], positions: Sequence[int], hashing: NgramHash) -> Ids:
    """tokens [slots, context] -> [T, orders]: the current token, the one before it, and so on."""
    out = np.empty((len(slots), len(hashing.multipliers)), dtype=np.int64)
    for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
        if not (0 <= slot < tokens.shape[0] and 0 <= position < tokens.shape[1]):
            raise IndexError(f"slot {slot}, position {position} of {tokens.shape[0]} slots of {tokens.shape[1]} tokens")
        cut = False
        out[row, 0] = tokens[slot, position]
        for back in range(1, out.shape[1]):
            cut = cut or position < back or tokens[slot, position - back] == hashing.end_of_text
            out[row, back] = hashing.end_of_text if cut else tokens[slot, position - back]
    return out


def hash_rows(context: Ids, hashing: NgramHash) -> Ids:
    """[T, orders] -> table rows [T, heads]; products stay below 2^63 by the choice of the multipliers."""
    orders = len(hashing.multipliers)
    per = len(hashing.sizes) // (orders - 1)
    out = np.empty((context.shape[0], len(hashing.sizes)), dtype=np.int64)
    mix = context[:, 0] * np.int64(hashing.multipliers[0])
    for order in range(1, orders):
        mix = mix ^ (context[:, order] * np.int64(hashing.multipliers[order]))
        for head in range((order - 1) * per, order * per):
            out[:, head] = mix % hashing.sizes[head] + hashing.offsets[head]
    return out
