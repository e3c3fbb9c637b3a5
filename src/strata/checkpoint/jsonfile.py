"""JSON from a model's folder: bounded in size and depth, without doubled keys and non-numbers."""

import json
import re
from pathlib import Path
from typing import NoReturn

from strata.core.errors import CheckpointError

MOST_DEPTH = 64

_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*+(?:"|\Z)', re.DOTALL)
_NO_BRACKET = re.compile(rb"[^\[\]{}]+")


def parse_object(data: bytes, where: str) -> dict[str, object]:
    """The JSON object in `data`; `where` begins every error."""
    _check_depth(data, where)

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(items)
        if len(found) < len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    raise CheckpointError(f"{where}: key {key!r:.100}: expected once, found twice")
                seen.add(key)
        return found

    def constant(name: str) -> NoReturn:
        raise CheckpointError(f"{where}: expected numbers, found {name}")

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except ValueError as error:
        raise CheckpointError(f"{where}: expected JSON, found: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def read_object(path: Path, most_bytes: int = 1 << 24) -> dict[str, object]:
    """The JSON object in the file at `path`, which may have `most_bytes` bytes."""
    return parse_object(read_bytes(path, most_bytes), str(path))


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """The whole file at `path`; CheckpointError when it is missing, no plain file, or larger than `most_bytes`."""
    try:
        if not path.is_file():
            raise CheckpointError(f"{path}: expected a file, found {'a folder' if path.is_dir() else 'nothing'}")
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if len(data) > most_bytes:
        raise CheckpointError(f"{path}: expected at most {most_bytes} bytes, found more")
    return data


def _check_depth(data: bytes, where: str) -> None:
    """Refuse nesting that would exhaust the parser's stack, before it parses."""
    depth = 0
    for bracket in _NO_BRACKET.sub(b"", _STRING.sub(b"", data)):
        if bracket in b"[{":
            depth += 1
            if depth > MOST_DEPTH:
                raise CheckpointError(f"{where}: expected objects and lists within {MOST_DEPTH} levels, found more")
        else:
            depth -= 1
