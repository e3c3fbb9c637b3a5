"""Kept prefixes as files of one folder: versioned, checksummed, written whole or not at all, bound to one identity.

A file, all integers little-endian:

    magic     8 bytes   STRATAKV
    version   u32       1
    header    u32       bytes of the header
    payload   u64       bytes of the payload
    tokens    u32       number of tokens
    digest    16 bytes  blake2b of the five fields above, the header and the tokens
    header    JSON      identity, key, parent, start, and per array its part, name, bytes and digest
    tokens    i32 each
    payload   the arrays, one after the other

It is written beside its place, synced and renamed; a file that is read back in any other form is ignored, and stays
where it is, for it may be somebody else's.
"""

import contextlib
import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from strata.state.blobs import blank
from strata.state.pages import first_written
from strata.state.prefix import Blob, Node, Tokens

MAGIC = b"STRATAKV"
VERSION = 1
FIXED = struct.Struct("<8sIIQI")
DIGEST = 16
SUFFIX = ".prefix"
TEMPORARY = ".part"
MOST_HEADER = 1 << 24


class ArchiveError(Exception):
    """A file that cannot be used; names it and says why."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.file = file
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file says about itself."""

    key: bytes
    parent: bytes
    start: int
    tokens: Tokens
    state: bool
    """Whether it holds a state, not pages alone."""
    nbytes: int
    used: float
    """When it was last of use, by the file's clock."""


def digest(*parts: bytes | memoryview) -> bytes:
    """Of all parts in order."""
    found = blake2b(digest_size=DIGEST)
    for part in parts:
        found.update(part)
    return found.digest()


def key_of(parent: bytes, start: int, tokens: Tokens) -> bytes:
    """The name of a prefix: all its tokens and how they were divided."""
    return digest(parent, struct.pack("<Q", start), tokens.astype("<i4").tobytes())


class Archive:
    """One folder of files with one identity; names of arrays and bytes a page are the same in all of them."""

    def __init__(
        self,
        folder: Path,
        identity: bytes,
        pages: Mapping[str, int],
        state: Mapping[str, int],
        page: int,
        rewrites: int = 0,
    ) -> None:
        """See `PageTable` for `rewrites`."""
        self.rewrites = rewrites
        self.folder = folder
        self.identity = identity
        self.pages = pages
        """Bytes of one page by array."""
        self.state = state
        """Bytes of one state by array."""
        self.page = page
        """Tokens of one page."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: bytes) -> Path:
        """Where a prefix lies."""
        return self.folder / f"{key.hex()}{SUFFIX}"

    def size(self, tokens: int, payload: int) -> int:
        """Bytes of a file, with the longest header."""
        arrays = [*self.pages, *self.state]
        return FIXED.size + DIGEST + 200 + sum(len(name) + 90 for name in arrays) + 4 * tokens + payload

    # --- all files -------------------------------------------------------------------------------------------

    def scan(self, warn: Callable[[ArchiveError], None]) -> list[Entry]:
        """Every file that can be used, shorter prefixes first; each other one is told to `warn`."""
        entries = []
        for file in sorted(self.folder.iterdir()):
            if file.suffix == TEMPORARY:
                with contextlib.suppress(OSError):
                    file.unlink(missing_ok=True)  # a write that did not come to its end
            elif file.suffix == SUFFIX:
                try:
                    entries.append(self.entry(file))
                except ArchiveError as error:
                    warn(error)
        return sorted(entries, key=lambda entry: entry.start + len(entry.tokens))

    def entry(self, file: Path) -> Entry:
        """What the file says about itself, its payload unread; ArchiveError."""
        with opened(file) as stream:
            header, tokens = self.head(file, stream)
            status = os.fstat(stream.fileno())
        return Entry(
            bytes.fromhex(header["key"]),
            bytes.fromhex(header["parent"]),
            header["start"],
            tokens,
            any(part == "state" for part, *_ in header["arrays"]) or not self.state,
            status.st_size,
            status.st_mtime,
        )

    def head(self, file: Path, stream: BufferedReader) -> tuple[dict[str, Any], Tokens]:
        """Read and check all but the payload."""
        size = os.fstat(stream.fileno()).st_size
        fixed = stream.read(FIXED.size)
        if len(fixed) < FIXED.size:
            raise ArchiveError(file, f"truncated: {size} bytes")
        magic, version, header_bytes, payload_bytes, count = FIXED.unpack(fixed)
        if magic != MAGIC:
            raise ArchiveError(file, "not a kept conversation")
        if version != VERSION:
            raise ArchiveError(file, f"version {version}, expected {VERSION}")
        expected = FIXED.size + DIGEST + header_bytes + 4 * count + payload_bytes
        if header_bytes > MOST_HEADER or size != expected:
            raise ArchiveError(file, f"{size} bytes, its header says {expected}")
        stored, header, tokens = stream.read(DIGEST), stream.read(header_bytes), stream.read(4 * count)
        if digest(fixed, header, tokens) != stored:
            raise ArchiveError(file, "its header or tokens are damaged")
        try:
            return self.checked(file, json.loads(header), tokens, payload_bytes)
        except (KeyError, TypeError, ValueError) as error:
            raise ArchiveError(file, f"its header is not understood: {type(error).__name__}") from error

    def checked(
        self, file: Path, fields: dict[str, Any], tokens: bytes, payload_bytes: int
    ) -> tuple[dict[str, Any], Tokens]:
        """Fields and tokens of a whole file, if it is one of this folder; ArchiveError."""
        if fields["identity"] != self.identity.hex():
            raise ArchiveError(file, "of another model or other settings")
        ids = np.frombuffer(tokens, "<i4").astype(np.int64)
        if (
            file.stem != fields["key"]
            or key_of(bytes.fromhex(fields["parent"]), fields["start"], ids).hex() != file.stem
        ):
            raise ArchiveError(file, "its name is not that of its tokens")
        self.check_arrays(file, fields, len(ids), payload_bytes)
        return fields, ids

    def check_arrays(self, file: Path, fields: dict[str, Any], count: int, payload: int) -> None:
        """ArchiveError unless the arrays are those that this model's states have."""
        start = fields["start"]
        pages = -(-(start + count) // self.page) - first_written(start, self.page, self.rewrites)
        paged = [["pages", name, pages * size] for name, size in self.pages.items()]
        whole = paged + [["state", name, size] for name, size in self.state.items()]
        found = [array[:3] for array in fields["arrays"]]
        if found not in (paged, whole) or sum(size for _, _, size in found) != payload:
            raise ArchiveError(file, "its arrays are not this model's")

    # --- one file --------------------------------------------------------------------------------------------

    def write(self, node: Node, pages: Blob, state: Blob | None) -> int:
        """Write one node -> bytes of the file; OSError leaves nothing behind but, after a crash, a temporary file."""
        assert node.parent is not None
        arrays = [("pages", name, pages[name]) for name in self.pages]
        arrays += [("state", name, state[name]) for name in self.state] if state is not None else []
        header = json.dumps(
            {
                "identity": self.identity.hex(),
                "key": node.key.hex(),
                "parent": node.parent.key.hex(),
                "start": node.start,
                "arrays": [[part, name, a.nbytes, digest(a.data).hex()] for part, name, a in arrays],
            },
            separators=(",", ":"),
        ).encode()
        tokens = node.tokens.astype("<i4").tobytes()
        payload = sum(array.nbytes for _, _, array in arrays)
        fixed = FIXED.pack(MAGIC, VERSION, len(header), payload, len(node.tokens))
        head = [fixed, digest(fixed, header, tokens), header, tokens]
        self.place(node.key, [*head, *(array.data for _, _, array in arrays)])
        return sum(map(len, head)) + payload

    def place(self, key: bytes, parts: Sequence[bytes | memoryview]) -> None:
        """Write beside the place, sync, rename, sync the folder."""
        temporary = self.path(key).with_suffix(TEMPORARY)
        try:
            with temporary.open("wb") as stream:
                for part in parts:
                    stream.write(part)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(self.path(key))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def read(self, key: bytes, part: str) -> Blob:
        """The arrays of one part; ArchiveError when the file is not what it was."""
        file = self.path(key)
        with opened(file) as stream:
            header, _ = self.head(file, stream)
            found = blank({name: size for owner, name, size, _ in header["arrays"] if owner == part})
            for owner, name, size, stored in header["arrays"]:
                if owner != part:
                    stream.seek(size, os.SEEK_CUR)
                elif stream.readinto(found[name].data) != size or digest(found[name].data).hex() != stored:
                    raise ArchiveError(file, f"{part} {name} is damaged")
        return found

    def use(self, key: bytes) -> None:
        """Note on disk that a file was of use now."""
        with contextlib.suppress(OSError):  # it is read, or not, when it is needed
            os.utime(self.path(key))

    def delete(self, key: bytes) -> None:
        """Remove a file; one that is gone already is as good."""
        self.path(key).unlink(missing_ok=True)


def opened(file: Path) -> BufferedReader:
    """The file for reading; ArchiveError."""
    try:
        return file.open("rb")
    except OSError as error:
        raise ArchiveError(file, f"cannot be read: {error.strerror}") from error
