"""Compiled kernels on disk, so that a kernel is compiled once per machine and version of everything it depends on."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

CHECK_BYTES = 32


def default_folder(environment: Mapping[str, str]) -> Path:
    """The user's folder for what can be made again: strata/kernels under XDG_CACHE_HOME or ~/.cache."""
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "strata" / "kernels"


def cached(folder: Path, key: str, make: Callable[[], bytes]) -> bytes:
    """The bytes kept under `key`, or those that `make` gives, kept from now on.

    A file is its bytes after their SHA-256; one that does not agree is made again. A folder that cannot be written
    costs the next start a compilation, nothing else.
    """
    file = folder / key
    kept = read(file)
    if kept is None:
        kept = make()
        write(file, kept)
    return kept


def read(file: Path) -> bytes | None:
    """What was written there; None when it is missing, damaged or may not be read."""
    try:
        raw = file.read_bytes()
    except OSError:
        return None
    check, content = raw[:CHECK_BYTES], raw[CHECK_BYTES:]
    return content if check == hashlib.sha256(content).digest() else None


def write(file: Path, content: bytes) -> None:
    """All of the file or nothing of it, also when two processes write at once."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(hashlib.sha256(content).digest() + content)
        Path(temporary).replace(file)
    except OSError:
        return
