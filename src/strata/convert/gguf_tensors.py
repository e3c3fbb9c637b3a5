"""A GGUF file's tensors as items, for requantising."""

from collections.abc import Iterator

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.tensor import TensorRef
from strata.convert.tensors import Floats, Item
from strata.quant.decode import dequantise

ROWS = 1 << 14
"""Rows decoded at once."""


def gguf_items(checkpoint: Checkpoint) -> list[Item]:
    """Every tensor of the file in its order."""
    return [_item(checkpoint, ref) for ref in checkpoint.tensors.values()]


def _item(checkpoint: Checkpoint, ref: TensorRef) -> Item:
    def parts() -> Iterator[Floats]:
        rows = ref.count // ref.shape[-1]
        raw = checkpoint.bytes_of(ref).reshape(rows, -1)
        for start in range(0, rows, ROWS):
            yield dequantise(ref.format, np.ascontiguousarray(raw[start : start + ROWS]))

    return Item(ref.name, ref.shape, parts, ref.format.name)
