"""What loaders ask of tensors."""

from pathlib import Path

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.tensor import TensorRef
from strata.checkpoint.text import shown
from strata.core.errors import CheckpointError


def expect(ref: TensorRef | None, name: str, shape: tuple[int, ...], file: Path | None = None) -> TensorRef:
    """`ref`, when it is there and has `shape`; CheckpointError with file, tensor, expected and found shape.

    `file` is named when there is no `ref` to say where it should have been.
    """
    if ref is None:
        place = "" if file is None else f"{file}: "
        raise CheckpointError(f"{place}tensor {shown(name)}: expected shape {list(shape)}, found no such tensor")
    if ref.shape != shape:
        stored = "" if ref.name == name else f" (in the file: {shown(ref.name)})"
        raise CheckpointError(
            f"{ref.file}: tensor {shown(name)}{stored}: expected shape {list(shape)}, found {list(ref.shape)}"
        )
    return ref


def take(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> TensorRef:
    """The tensor `name` of `checkpoint`, which must be there and have `shape`."""
    return expect(checkpoint.tensors.get(name), name, shape, checkpoint.path)
