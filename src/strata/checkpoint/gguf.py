"""A GGUF model: one file, or all files of a split, opened as one checkpoint."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from strata.checkpoint.files import MappedFiles
from strata.checkpoint.gguf_header import Header, read_header
from strata.checkpoint.mapped import MappedFile
from strata.checkpoint.metadata import Metadata
from strata.checkpoint.tensor import TensorRef
from strata.checkpoint.text import listed, shown
from strata.checkpoint.typed import Typed
from strata.core.errors import CheckpointError

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
_INTEGER_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Shard:
    """What a name of the form STEM-00001-of-00003.gguf says."""

    stem: str
    number: int
    """From 1."""
    total: int

    def name(self, number: int) -> str:
        """The name of another file of the same split."""
        return f"{self.stem}-{number:05d}-of-{self.total:05d}.gguf"


def shard_of(name: str) -> Shard | None:
    """The place in a split that a file's name gives it; None for a name of another form."""
    match = _SHARD.fullmatch(name)
    if match is None:
        return None
    shard = Shard(match["stem"], int(match["number"]), int(match["count"]))
    return shard if 1 <= shard.number <= shard.total else None


class GgufCheckpoint(MappedFiles):
    """Headers and mapped bytes of a GGUF model; close it (or use `with`) to give the files back."""

    kind: Literal["gguf"] = "gguf"

    def __init__(self, path: Path, files: list[MappedFile], headers: list[Header]) -> None:
        super().__init__(files)
        self.path = path
        self.headers = tuple(headers)
        self.types: Mapping[str, Typed] = _merged_keys(headers)
        """The key-values with their GGUF types, as a writer needs them."""
        self.tensors: Mapping[str, TensorRef] = _merged_tensors(headers)
        self.metadata = Metadata(path, {key: typed.value for key, typed in self.types.items()})
        self.notes = tuple(f"{h.path.name}: {note}" for h in headers for note in h.notes)
        """What is unusual in the files, but harmless."""


def open_gguf(path: Path) -> GgufCheckpoint:
    """Open a GGUF file; any file of a split opens all of it. CheckpointError says what is wrong with which file."""
    files: list[MappedFile] = []
    try:
        for name in _files_of(path):
            files.append(MappedFile(name))
        headers = [read_header(file) for file in files]
        _check_split(headers)
        return GgufCheckpoint(files[0].path, files, headers)
    except BaseException:
        # also for an interrupt: nobody else knows these files yet
        for file in files:
            file.close()
        raise


def _files_of(path: Path) -> list[Path]:
    """The file, or every file of its split in order."""
    shard = shard_of(path.name)
    if shard is None or shard.total == 1:
        return [path]
    folder, missing = path.parent, _missing(path.parent, shard)
    if missing and path.is_symlink():
        # a link to one file of a split: the others lie beside the file itself
        target = path.resolve()
        beside = shard_of(target.name)
        if beside is not None and not _missing(target.parent, beside):
            folder, shard, missing = target.parent, beside, []
    if missing:
        raise CheckpointError(
            f"{path}: expected the {shard.total} files of a split in {path.parent}, found "
            f"{shard.total - len(missing)}; missing: {listed(missing)}",
            hint="download the missing files into the same folder",
        )
    return [folder / shard.name(number) for number in range(1, shard.total + 1)]


def _missing(folder: Path, shard: Shard) -> list[str]:
    names = (shard.name(number) for number in range(1, shard.total + 1))
    return [name for name in names if not (folder / name).is_file()]


def _check_split(headers: list[Header]) -> None:
    """Every file says that it belongs to this split, at this place."""
    for index, header in enumerate(headers):
        keys = Metadata(header.path, {k: t.value for k, t in header.types.items() if k.startswith("split.")})
        count = keys.integer("split.count", 0, 65_535, 0 if len(headers) == 1 else None)
        if len(headers) == 1 and count <= 1:
            return
        if len(headers) == 1:
            raise CheckpointError(
                f"{header.path}: key split.count: the file is one of {count}, so its name must end in "
                f"-00001-of-{count:05d}.gguf (with its own number), found {header.path.name}",
                hint="give the file its original name back",
            )
        if count != len(headers):
            raise keys.fail("split.count", f"{len(headers)}, as in the file's name", count)
        number = keys.integer("split.no", 0, 65_535)
        if number != index:
            raise keys.fail("split.no", f"{index}, as in the file's name", number)
        found = sum(len(h.tensors) for h in headers)
        total = keys.integer("split.tensors.count", 0, _INTEGER_MAX, found)
        if total != found:
            raise keys.fail("split.tensors.count", f"{found}, the tensors of all {len(headers)} files", total)


def _merged_keys(headers: list[Header]) -> dict[str, Typed]:
    """The first file's keys, and what others add; a key that says two things means a file of another model."""
    merged = dict(headers[0].types)
    for header in headers[1:]:
        for key, typed in header.types.items():
            if key.startswith("split.") or key == "general.alignment":
                continue
            if merged.setdefault(key, typed) != typed:
                raise CheckpointError(
                    f"{header.path}: key {shown(key)}: expected what {headers[0].path.name} says, found another value: "
                    "the file belongs to another model"
                )
    return merged


def _merged_tensors(headers: list[Header]) -> dict[str, TensorRef]:
    merged: dict[str, TensorRef] = {}
    for header in headers:
        for name, ref in header.tensors.items():
            if name in merged:
                raise CheckpointError(
                    f"{header.path}: tensor {shown(name)}: expected in one file of the split, found also in "
                    f"{merged[name].file.name}"
                )
            merged[name] = ref
    return merged
