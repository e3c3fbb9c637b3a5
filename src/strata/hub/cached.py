"""What the cache holds: models to list, to find by name, and to take away."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub

from strata.core.errors import UsageError
from strata.hub.choose import RemoteFile, choose_files, gguf_models
from strata.hub.name import HubName

_PART = re.compile(r"(.*)-\d+-of-(\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class Held:
    """A model in the cache."""

    name: str
    """As a command takes it: org/name, or org/name:FILE for one of several."""
    nbytes: int
    used_s: float
    """When it was read last, in seconds since 1970, as far as the file system says."""
    path: Path
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A repository's files that are here."""

    repo: str
    folder: Path
    files: tuple[RemoteFile, ...]
    used_s: float


def snapshots(cache: Path) -> list[Snapshot]:
    """The newest revision of every model repository in `cache`; none for a folder that is not there."""
    if not cache.is_dir():
        return []
    found = []
    for repo in huggingface_hub.scan_cache_dir(cache).repos:
        if repo.repo_type != "model" or not repo.revisions:
            continue
        # The branch's own, else the one that changed last.
        revision = max(repo.revisions, key=lambda r: ("main" in r.refs, r.last_modified))
        folder = revision.snapshot_path
        files = [
            RemoteFile(file.file_path.relative_to(folder).as_posix(), file.size_on_disk) for file in revision.files
        ]
        files.sort(key=lambda file: file.path)
        found.append(Snapshot(repo.repo_id, folder, tuple(files), repo.last_accessed))
    return sorted(found, key=lambda snapshot: snapshot.repo)


def find(cache: Path, name: HubName) -> Path | None:
    """What is opened of a model that is here; None when it, or a part of it, is not."""
    snapshot = next((s for s in snapshots(cache) if s.repo == name.repo), None)
    if snapshot is None or not whole_parts(snapshot.files):
        return None
    try:
        chosen = choose_files(name, snapshot.files)
    except UsageError:
        return None
    return snapshot.folder / chosen.opened if chosen.opened else snapshot.folder


def whole_parts(files: tuple[RemoteFile, ...]) -> bool:
    """Whether every safetensors model among `files` has all of its parts."""
    parts = [match for file in files if (match := _PART.fullmatch(file.path))]
    counted = Counter((part[1], int(part[2])) for part in parts)
    return all(number == total for (_, total), number in counted.items())


def held(cache: Path) -> list[Held]:
    """Every model that the cache holds, each GGUF file (or split) for itself."""
    found = []
    for snapshot in snapshots(cache):
        weights = [file for file in snapshot.files if file.path.endswith(".safetensors") and "/" not in file.path]
        if weights:
            size = sum(file.nbytes for file in snapshot.files)
            complete = whole_parts(snapshot.files)
            found.append(Held(snapshot.repo, size, snapshot.used_s, snapshot.folder, complete))
        for stem, parts, complete in _ggufs(snapshot):
            name = f"{snapshot.repo}:{Path(stem).name}"
            size = sum(file.nbytes for file in parts)
            found.append(Held(name, size, snapshot.used_s, snapshot.folder / parts[0].path, complete))
    return found


def _ggufs(snapshot: Snapshot) -> list[tuple[str, tuple[RemoteFile, ...], bool]]:
    try:
        return [(stem, parts, True) for stem, parts in sorted(gguf_models(snapshot.files).items())]
    except UsageError:
        files = [file for file in snapshot.files if file.path.endswith(".gguf")]
        return [(file.path.removesuffix(".gguf"), (file,), False) for file in files]


def remove(cache: Path, name: HubName) -> int:
    """Take a model away -> bytes that are free now; UsageError when it is not here.

    Without a quantisation the whole repository goes, with one its files only.
    """
    snapshot = next((s for s in snapshots(cache) if s.repo == name.repo), None)
    if snapshot is None:
        raise UsageError(f"{name}: the cache {cache} has no such model", "strata list shows what it holds")
    if name.quant:
        chosen = choose_files(name, snapshot.files)
        gone = [snapshot.folder / file.path for file in chosen.files]
        if len(chosen.files) < len([f for f in snapshot.files if f.path.endswith(".gguf")]):
            return sum(_unlink(path) for path in gone)
    info = huggingface_hub.scan_cache_dir(cache)
    commits = [r.commit_hash for repo in info.repos if repo.repo_id == name.repo for r in repo.revisions]
    plan = info.delete_revisions(*commits)
    freed = plan.expected_freed_size
    plan.execute()
    return freed


def _unlink(path: Path) -> int:
    """Take a file of a snapshot away, with its bytes."""
    blob = path.resolve()
    size = blob.stat().st_size
    path.unlink()
    blob.unlink(missing_ok=True)
    return size
