"""Writing GGUF files: one tensor in memory at a time, and nothing half-written under the file's name."""

import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from strata.checkpoint.gguf_header import DEFAULT_ALIGNMENT, MAGIC, MOST_DIMS
from strata.checkpoint.typed import Typed, encode, encode_string, u32
from strata.core.errors import CheckpointError
from strata.quant.format import QuantFormat

Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]
Data = Buffer | Callable[[], Buffer | Iterable[Buffer]]
"""A tensor's bytes, or what makes them when their turn comes: whole, or piece by piece."""

VERSION = 3
_ALIGNMENT_KEY = "general.alignment"


@dataclass(frozen=True, slots=True)
class TensorSource:
    """A tensor to be written; `shape` in torch order, `data` in the format's rows."""

    name: str
    shape: tuple[int, ...]
    format: QuantFormat
    data: Data

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        count = 1
        for dim in self.shape[:-1]:
            count *= dim
        return count * self.format.row_bytes(self.shape[-1])


def write_gguf(
    path: Path,
    metadata: Mapping[str, Typed],
    tensors: Iterable[TensorSource],
    alignment: int = DEFAULT_ALIGNMENT,
) -> None:
    """Write `path`: the keys in the order given, then the tensors.

    `metadata` holds general.architecture and every other key with its type; general.alignment is added when
    `alignment` is not GGUF's default. ValueError for arguments that make no valid file; CheckpointError when the
    disk refuses. On any failure a file that was at `path` is still there, unchanged.
    """
    sources = list(tensors)
    header = _header(metadata, sources, alignment)
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        with part.open("xb") as file:
            file.write(header)
            for source in sources:
                written = _write_data(file, source)
                file.write(b"\0" * (-written % alignment))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _header(metadata: Mapping[str, Typed], sources: Sequence[TensorSource], alignment: int) -> bytes:
    if alignment < 8 or alignment & (alignment - 1):
        raise ValueError(f"alignment {alignment} is no power of two of at least 8")
    keys = dict(metadata)
    if alignment != DEFAULT_ALIGNMENT:
        keys.setdefault(_ALIGNMENT_KEY, u32(alignment))
    if keys.get(_ALIGNMENT_KEY, u32(alignment)) != u32(alignment):
        raise ValueError(f"{_ALIGNMENT_KEY} {keys[_ALIGNMENT_KEY].value} differs from the alignment {alignment}")
    out = [MAGIC, struct.pack("<IQQ", VERSION, len(sources), len(keys))]
    for key, typed in keys.items():
        try:
            out.append(_name(key) + encode(typed))
        except ValueError as error:
            raise ValueError(f"key {key}: {error}") from error
    offset = 0
    names: set[str] = set()
    for source in sources:
        if source.name in names:
            raise ValueError(f"tensor {source.name} is given twice")
        names.add(source.name)
        out.append(_tensor_info(source, offset))
        offset += -(-source.nbytes // alignment) * alignment
    header = b"".join(out)
    return header + b"\0" * (-len(header) % alignment)


def _name(text: str) -> bytes:
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} is no printable name")
    return encode_string(text)


def _tensor_info(source: TensorSource, offset: int) -> bytes:
    shape = source.shape
    if not 1 <= len(shape) <= MOST_DIMS or min(shape) < 1:
        raise ValueError(f"tensor {source.name}: shape {shape} needs 1 to {MOST_DIMS} dimensions of at least 1")
    if source.format.type_id < 0:
        raise ValueError(f"tensor {source.name}: GGUF has no type for {source.format.name}")
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return _name(source.name) + dims + struct.pack("<IQ", source.format.type_id, offset)


def _write_data(file: IO[bytes], source: TensorSource) -> int:
    written = 0
    for piece in _pieces(source.data):
        written += file.write(_plain(piece))
    if written != source.nbytes:
        raise ValueError(f"tensor {source.name}: expected {source.nbytes} bytes, got {written}")
    return written


def _pieces(data: Data) -> Iterator[Buffer]:
    made = data() if callable(data) else data
    if isinstance(made, bytes | bytearray | memoryview | np.ndarray):
        yield made
    else:
        yield from made


def _plain(piece: Buffer) -> memoryview:
    """The piece's bytes in order; an array is taken in C order and must be little-endian."""
    if not isinstance(piece, np.ndarray):
        return memoryview(piece).cast("B")
    if piece.dtype.byteorder == ">":
        raise ValueError("expected little-endian values, got big-endian ones")
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, where the system can (Windows has no such call)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
