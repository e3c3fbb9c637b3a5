"""Tensors under one set of names, whichever container they come from.

Names are GGUF's (models of llama.cpp); a safetensors folder is read through a model's own table of `Rule`s. A source
also says which conventions its tensors follow, and remembers what was taken, so that a tensor nobody read is noticed.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.tensor import TensorRef
from strata.core.errors import CheckpointError, UnsupportedError
from strata.kernels.views import ExpertBank, Weight
from strata.quant.decode import dequantise
from strata.quant.formats import FORMATS
from strata.store.rows import RowTable

Container = Literal["gguf", "safetensors"]


class Source(Protocol):
    """Where a model file's `build` takes its tensors from."""

    @property
    def container(self) -> Container:
        """Which conventions hold: head order, packing, rotary layout."""
        ...

    def has(self, name: str) -> bool:
        """Whether the tensor exists."""
        ...

    def weight(self, name: str, rows: int, cols: int) -> Weight:
        """A matrix in its file format, zero-copy; CheckpointError when missing or of another shape."""
        ...

    def vector(self, name: str, *shape: int) -> torch.Tensor:
        """A small tensor as float32, by value, with the container's transform applied."""
        ...

    def experts(self, layer: int, count: int, width: int, hidden: int) -> ExpertBank:
        """The routed experts of a layer, zero-copy."""
        ...

    def rows(self, name: str, layer: int, needed: int, cols: int) -> RowTable:
        """A large table with at least `needed` rows of `cols`, whole or in shards (n-gram rows of `layer`)."""
        ...

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """An int64 tensor's values, exactly."""
        ...

    def check_all_used(self) -> None:
        """UnsupportedError when the file holds a tensor of the trunk that nothing asked for (fail closed)."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """How one tensor of a safetensors folder becomes ours."""

    leaf: str
    """HF name below the layer (or the whole name), without `.weight`."""
    transform: Literal["plain", "plus_one", "negative_exp"] = "plain"
    rows: Literal["all", "head", "tail"] = "all"
    """head/tail: only the first/last rows of a stacked matrix (as many as asked for)."""
    other: str = ""
    """A second name that some folders use instead of `leaf`."""


def as_tensor(raw: npt.NDArray[np.uint8]) -> torch.Tensor:
    """A read-only view of the mapped file as a tensor. torch has no read-only ones and warns; nothing writes here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(raw)


def plane(checkpoint: Checkpoint, ref: TensorRef, rows: int) -> torch.Tensor:
    """The bytes of `ref` as uint8 [rows, row_bytes], zero-copy."""
    raw = checkpoint.bytes_of(ref)
    return as_tensor(raw.reshape(rows, -1))


def require(checkpoint: Checkpoint, name: str) -> TensorRef:
    """The tensor, or a CheckpointError that names it."""
    ref = checkpoint.tensors.get(name)
    if ref is None:
        raise CheckpointError(f"{checkpoint.path}: tensor {name} is missing")
    return ref


def expect_shape(ref: TensorRef, shape: tuple[int, ...]) -> None:
    """CheckpointError naming file, tensor, expected and found shape. Single-value axes are not told apart."""
    if tuple(d for d in ref.shape if d != 1) != tuple(d for d in shape if d != 1):
        raise CheckpointError(f"{ref.file}: tensor {ref.name}: expected shape {list(shape)}, found {list(ref.shape)}")


def slice_rows(weight: Weight, start: int, stop: int) -> Weight:
    """Rows [start, stop) of a matrix; UnsupportedError when the cut goes through a block that shares a scale."""
    high = weight.format.scale_block[0] if weight.format.scale_block is not None else 1
    if start % high:
        raise UnsupportedError(
            f"a stacked matrix in {weight.format.name} cannot be cut at row {start} (blocks: {high})"
        )
    planes = (weight.planes[0][start:stop], *(p[start // high : -(-stop // high)] for p in weight.planes[1:]))
    return Weight(weight.format, stop - start, weight.cols, planes, weight.scale)


def some_rows(weight: Weight, ids: torch.Tensor) -> Weight:
    """Rows `ids` (int64 [N]) of a matrix, by value; UnsupportedError where rows share scales."""
    if weight.format.scale_block is not None and weight.format.scale_block[0] > 1:
        raise UnsupportedError(f"single rows of a matrix in {weight.format.name}: rows share scales there")
    planes = tuple(plane[ids].contiguous() for plane in weight.planes)
    return Weight(weight.format, len(ids), weight.cols, planes, weight.scale)


def side_by_side(left: Weight, right: Weight) -> Weight:
    """One matrix [left | right] of as many rows, by value; UnsupportedError when their formats or scales differ."""
    if (left.format, left.rows, left.scale) != (right.format, right.rows, right.scale):
        raise UnsupportedError(
            f"matrices side by side must be of one kind, found {left.rows} rows in {left.format.name} (scale "
            f"{left.scale:g}) and {right.rows} rows in {right.format.name} (scale {right.scale:g})"
        )
    wide = max(left.format.block, left.format.scale_block[1] if left.format.scale_block is not None else 1)
    if left.cols % wide:
        raise UnsupportedError(f"{left.cols} columns in {left.format.name}: expected a multiple of {wide}")
    planes = tuple(torch.cat(pair, dim=1) for pair in zip(left.planes, right.planes, strict=True))
    return Weight(left.format, left.rows, left.cols + right.cols, planes, left.scale)


def floats(checkpoint: Checkpoint, ref: TensorRef) -> torch.Tensor:
    """A whole tensor decoded to float32, flat."""
    raw = np.ascontiguousarray(checkpoint.bytes_of(ref)).reshape(1, -1)
    return torch.from_numpy(dequantise(ref.format, raw).reshape(-1).copy())


def matrix(checkpoint: Checkpoint, ref: TensorRef, rows: int, cols: int, scale: float = 1.0) -> Weight:
    """A 2-D tensor as a Weight."""
    expect_shape(ref, (rows, cols))
    if ref.format.name not in FORMATS or (ref.format.sub == 0 and ref.format.name not in PRODUCT_FLOATS):
        raise UnsupportedError(f"{ref.file}: tensor {ref.name}: {ref.format.name} cannot be multiplied with")
    return Weight(ref.format, rows, cols, (plane(checkpoint, ref, rows),), scale)


PRODUCT_FLOATS = frozenset({"F32", "F16", "BF16", "FP8", "FP8_BLOCK"})


def unused_error(path: object, left: Mapping[str, object]) -> UnsupportedError:
    """The refusal for tensors that no part of the model reads."""
    names = sorted(left)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return UnsupportedError(
        f"{path}: tensor {names[0]}{more}: this architecture has no place for it, so the output would be wrong"
    )


def int64s(checkpoint: Checkpoint, name: str, count: int) -> tuple[int, ...]:
    """The values of an int64 tensor of exactly `count`."""
    ref = require(checkpoint, name)
    if ref.format.name != "I64":
        raise CheckpointError(f"{ref.file}: tensor {name}: expected int64, found {ref.format.name}")
    expect_shape(ref, (count,))
    return tuple(int(v) for v in np.frombuffer(checkpoint.bytes_of(ref).tobytes(), dtype="<i8"))


def row_table(checkpoint: Checkpoint, refs: Sequence[TensorRef], needed: int, cols: int) -> RowTable:
    """Shards as one table; CheckpointError when there are too few rows."""
    shards = [matrix(checkpoint, r, r.shape[0], cols) for r in refs]
    table = RowTable(shards)
    if table.rows < needed:
        raise CheckpointError(
            f"{refs[0].file}: tensor {refs[0].name}: expected {needed} rows or more, found {table.rows}"
        )
    return table
