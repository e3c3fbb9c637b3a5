"""ngram_rows in C++ (csrc/rows_bind.cpp); integers as ngram/naive.py."""

import torch

from strata.kernels import _native
from strata.kernels.addresses import integers
from strata.kernels.native import Native, check
from strata.kernels.views import NgramHash, Rows


def ngram_rows(native: Native, tokens: torch.Tensor, rows: Rows, hashing: NgramHash) -> torch.Tensor:
    """See Ops.ngram_rows; IndexError for a slot or position outside the tokens."""
    check("ngram_rows: tokens", tokens, torch.int64, None, None)
    count = rows.slot.shape[0]
    out = native.empty(count, len(hashing.sizes), dtype=torch.int64)
    _native.ngram_rows(
        native.handle,
        tokens.data_ptr(),
        tokens.shape[0],
        tokens.shape[1],
        integers("ngram_rows: slot", rows.slot, (count,)),
        integers("ngram_rows: position", rows.position, (count,)),
        count,
        list(hashing.multipliers),
        list(hashing.sizes),
        list(hashing.offsets),
        hashing.end_of_text,
        out.data_ptr(),
    )
    return out
