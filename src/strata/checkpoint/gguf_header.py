"""The header of one GGUF file: keys with their types, and where each tensor lies.

Layout (GGUF versions 2 and 3, little-endian): "GGUF", u32 version, u64 tensors, u64 keys, the key-values, then per
tensor its name, u32 n_dims, u64 dims (innermost first), u32 type, u64 offset; then padding to the alignment, and the
data section that the offsets count from.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from strata.checkpoint.cursor import Cursor
from strata.checkpoint.mapped import MappedFile
from strata.checkpoint.metadata import Metadata
from strata.checkpoint.tensor import TensorRef
from strata.checkpoint.text import shown
from strata.checkpoint.typed import Typed
from strata.core.errors import UnsupportedError
from strata.quant.format import QuantFormat
from strata.quant.formats import by_type_id

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MOST_TENSORS = 1 << 20
MOST_KEYS = 1 << 16
MOST_DIMS = 4
# the shortest possible key (length, one letter, type, one byte) and tensor (name, n_dims, one dim, type, offset)
_KEY_BYTES = 8 + 1 + 4 + 1
_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8
_CONTESTED = 42
"""Type ids that several programs gave to different formats: Q2_0 here, with blocks of 18 bytes per 64 values."""


@dataclass(frozen=True, slots=True)
class Header:
    """What one file says; `data_start` is where the data section begins."""

    path: Path
    version: int
    alignment: int
    data_start: int
    types: dict[str, Typed]
    tensors: dict[str, TensorRef]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor as the header lists it, before its place in the file is known."""

    name: str
    shape: tuple[int, ...]
    format: QuantFormat
    offset: int
    nbytes: int


def read_header(file: MappedFile) -> Header:
    """Parse and check `file`'s header; CheckpointError with file, tensor or key, expected and found."""
    with Cursor(file) as cursor:
        version = _version(cursor)
        num_tensors = cursor.u64("the number of tensors")
        num_keys = cursor.count("keys", _KEY_BYTES, MOST_KEYS)
        # the tensors come after the keys: this is a first bound, and the one that hostile headers meet
        _bound_tensors(cursor, num_tensors)
        types = _keys(cursor, num_keys)
        alignment = _alignment(file.path, types)
        _bound_tensors(cursor, num_tensors)
        entries = _entries(cursor, num_tensors, alignment)
        data_start = -(-cursor.position // alignment) * alignment
        notes = _check_places(cursor, entries, data_start, alignment)
    tensors = {
        e.name: TensorRef(e.name, e.shape, e.format, file.path, data_start + e.offset, e.nbytes) for e in entries
    }
    return Header(file.path, version, alignment, data_start, types, tensors, notes)


def _version(cursor: Cursor) -> int:
    """Check magic, byte order and version."""
    magic = cursor.raw(min(4, cursor.remaining), "the magic")
    if magic != MAGIC:
        cursor.position = 0
        likely = _likely(cursor.raw(min(512, cursor.remaining), "the first bytes"))
        cursor.fail(f"expected a GGUF file, found {likely}", hint="download the file again, or name another")
    version = cursor.u32("the version")
    if version & 0xFFFF == 0 and version:
        cursor.fail("expected a little-endian GGUF file, found a big-endian one")
    if version not in VERSIONS:
        cursor.fail(f"expected GGUF version 2 or 3, found version {version}")
    return version


def _likely(head: bytes) -> str:
    """What a file that begins with `head` probably is."""
    start = head.lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "what looks like an HTML page (a failed download)"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer instead of the file it stands for"
    if head.startswith(b"PK\x03\x04"):
        return "a ZIP archive"
    if head.startswith(MAGIC[::-1]):
        return "a file whose bytes are swapped"
    if len(head) > 9 and head[8:9] == b"{" and head[6:8] == b"\0\0":
        return "what looks like a safetensors file"
    if not head.strip(b"\0"):
        return "zeros (an unfinished download)"
    if MAGIC.startswith(head):
        return f"only its first {len(head)} bytes"
    return f"one that begins with {head[:4]!r}"


def _bound_tensors(cursor: Cursor, found: int) -> None:
    room = min(cursor.remaining // _TENSOR_BYTES, MOST_TENSORS)
    if found > room:
        cursor.fail(f"expected at most {room} tensors in the {cursor.remaining} bytes that remain, found {found}")


def _keys(cursor: Cursor, count: int) -> dict[str, Typed]:
    types: dict[str, Typed] = {}
    for index in range(count):
        key = cursor.name(f"the name of key {index} of {count}")
        if key in types:
            cursor.fail(f"key {shown(key)}: expected once, found twice")
        types[key] = cursor.value(key)
    return types


def _alignment(path: Path, types: dict[str, Typed]) -> int:
    key = "general.alignment"
    metadata = Metadata(path, {k: types[k].value for k in (key,) if k in types})
    alignment = metadata.integer(key, 8, 1 << 30, DEFAULT_ALIGNMENT)
    if alignment & (alignment - 1):
        raise metadata.fail(key, "a power of two", alignment)
    return alignment


def _entries(cursor: Cursor, count: int, alignment: int) -> list[_Entry]:
    entries: list[_Entry] = []
    names: set[str] = set()
    for index in range(count):
        name = cursor.name(f"the name of tensor {index} of {count}")
        if name in names:
            cursor.fail(f"tensor {shown(name)}: expected once, found twice")
        names.add(name)
        entries.append(_entry(cursor, name, alignment))
    return entries


def _entry(cursor: Cursor, name: str, alignment: int) -> _Entry:
    what = f"tensor {shown(name)}"
    num_dims = cursor.u32(f"the number of dimensions of {what}")
    if not 1 <= num_dims <= MOST_DIMS:
        cursor.fail(f"{what}: expected 1 to {MOST_DIMS} dimensions, found {num_dims}")
    shape = tuple(cursor.u64(f"dimension {i} of {what}") for i in range(num_dims))[::-1]
    if 0 in shape:
        cursor.fail(f"{what}: expected dimensions of at least 1, found {list(shape)}")
    format_ = _format(cursor, what)
    if shape[-1] % format_.block:
        cursor.fail(
            f"{what}: expected rows of a multiple of {format_.block} values for {format_.name}, found {shape[-1]}"
        )
    nbytes = format_.row_bytes(shape[-1])
    for dim in shape[:-1]:
        nbytes *= dim
    offset = cursor.u64(f"the offset of {what}")
    if offset % alignment:
        cursor.fail(f"{what}: expected an offset that is a multiple of {alignment}, found {offset}")
    return _Entry(name, shape, format_, offset, nbytes)


def _format(cursor: Cursor, what: str) -> QuantFormat:
    type_id = cursor.u32(f"the type of {what}")
    try:
        return by_type_id(type_id)
    except UnsupportedError as error:
        cursor.fail(f"{what}: {error.message}")


def _check_places(cursor: Cursor, entries: list[_Entry], data_start: int, alignment: int) -> tuple[str, ...]:
    """Every tensor within the file and none on another's bytes; notes on what is unusual but harmless."""
    if not entries:
        return ()
    ordered = sorted(entries, key=lambda e: e.offset)
    for entry, following in pairwise(ordered):
        given = following.offset - entry.offset
        if entry.format.type_id == _CONTESTED and not 0 <= given - entry.nbytes < alignment:
            _contested(cursor, entry, given)
        if entry.nbytes > given:
            cursor.fail(
                f"tensors {shown(entry.name)} and {shown(following.name)}: expected separate bytes, found "
                f"{entry.nbytes} bytes at offset {entry.offset} and {following.nbytes} at {following.offset}"
            )
    last = max(ordered, key=lambda e: e.offset + e.nbytes)
    end = last.offset + last.nbytes
    room = cursor.size - data_start
    if end > room:
        _cut_off(cursor, last, data_start)
    if last.format.type_id == _CONTESTED and room - end >= alignment:
        _contested(cursor, last, room - last.offset)
    return _check_end(cursor, last, room, alignment)


def _cut_off(cursor: Cursor, last: _Entry, data_start: int) -> NoReturn:
    hint = "the file is cut off or damaged: download it again"
    if last.format.type_id == _CONTESTED:
        hint += f" (or its type {_CONTESTED} is another program's format)"
    cursor.fail(
        f"tensor {shown(last.name)}: expected {last.nbytes} bytes ({last.format.name} {list(last.shape)}) at byte "
        f"{data_start + last.offset}, but the file ends at byte {cursor.size}",
        hint=hint,
    )


def _contested(cursor: Cursor, entry: _Entry, found: int) -> NoReturn:
    cursor.fail(
        f"tensor {shown(entry.name)}: type {_CONTESTED} ({entry.format.name}, {entry.format.block_bytes} bytes per "
        f"{entry.format.block} values) needs {entry.nbytes} bytes, but the file gives it {found}: the file uses "
        "another program's format of the same number",
        hint=f"convert the model with a program that writes ggml's {entry.format.name}",
    )


def _check_end(cursor: Cursor, last: _Entry, room: int, alignment: int) -> tuple[str, ...]:
    """A file may end with the last tensor's bytes or after their padding; one that ends within was cut."""
    end = last.offset + last.nbytes
    padded = -(-end // alignment) * alignment
    if end < room < padded:
        cursor.fail(
            f"expected {padded - end} bytes of padding after tensor {shown(last.name)}, found {room - end}",
            hint="the file is cut off or damaged: download it again",
        )
    return (f"{room - padded} bytes follow the last tensor",) if room > padded else ()
