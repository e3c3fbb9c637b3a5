"""A GGUF file's tensors as items, for requantising."""

from collections.abc import Iterator, Mapping

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.tensor import TensorRef
from strata.convert.tensors import Bytes, Floats, Item, Native, Pieces, spans
from strata.core.errors import CheckpointError
from strata.models.registry import architecture_of
from strata.quant.decode import dequantise

SIDES = (".scale", ".input_scale")
"""Scales beside a matrix: the first multiplies it, the second only concerns quantised activations."""


def gguf_items(checkpoint: Checkpoint) -> list[Item]:
    """Every tensor of the file in its order; second scales are folded into their matrices."""
    first = first_drafting_layer(checkpoint)
    sides = {n for n in checkpoint.tensors if n.endswith(SIDES)}
    return [
        _item(checkpoint, ref, _second(checkpoint.tensors, name), name.startswith("blk.") and layer_of(name) >= first)
        for name, ref in checkpoint.tensors.items()
        if name not in sides
    ]


def first_drafting_layer(checkpoint: Checkpoint) -> int:
    """Number of trunk layers: what follows only drafts."""
    arch, meta = architecture_of(checkpoint), checkpoint.metadata
    blocks = meta.integer(f"{arch}.block_count", 1, 4096)
    return blocks - meta.integer(f"{arch}.nextn_predict_layers", 0, blocks, default=0)


def layer_of(name: str) -> int:
    """The layer of a `blk.N.` name."""
    number = name.split(".")[1]
    if not number.isdigit():
        raise CheckpointError(f"tensor {name}: expected a layer number after blk.")
    return int(number)


def _second(tensors: Mapping[str, TensorRef], name: str) -> TensorRef | None:
    return tensors.get(name.removesuffix(".weight") + ".scale") if name.endswith(".weight") else None


def _item(checkpoint: Checkpoint, ref: TensorRef, second: TensorRef | None, drafting: bool) -> Item:
    stack = ref.shape[0] if len(ref.shape) == 3 else 1
    rows = ref.count // ref.shape[-1] // stack
    scales = _scales(checkpoint, second, stack) if second is not None else None

    def raw() -> Iterator[tuple[int, Bytes]]:
        flat = checkpoint.bytes_of(ref).reshape(stack, rows, -1)
        for matrix in range(stack):
            for span in spans(rows, ref.shape[-1]):
                yield matrix, np.ascontiguousarray(flat[matrix, span])

    def pieces() -> Pieces:
        for matrix, part in raw():
            values = dequantise(ref.format, part)
            yield matrix, values if scales is None else values * scales[matrix]

    native = Native(ref.format, lambda: (part for _, part in raw()), scales)
    return Item(ref.name, ref.shape, pieces, ref.format.name, native, drafting)


def _scales(checkpoint: Checkpoint, ref: TensorRef, stack: int) -> Floats:
    values = dequantise(ref.format, np.ascontiguousarray(checkpoint.bytes_of(ref)).reshape(1, -1))[0]
    if len(values) not in (1, stack):
        raise CheckpointError(f"{ref.file}: tensor {ref.name}: expected 1 or {stack} values, found {len(values)}")
    return np.broadcast_to(values, stack).astype(np.float32)
