"""One large file into the cache's layout, going on where an earlier try ended.

huggingface_hub begins a broken download again from nothing (its temporary files have random names), which for tens of
gigabytes is not good enough. This keeps `blobs/HASH.incomplete` until it is whole and its hash is right.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # exported, but lazily
from tqdm import tqdm

from strata.core.errors import CheckpointError, StrataError
from strata.hub.name import Said

SHA256 = 64
"""Characters of the hash that names a large file."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file as the hub describes it."""

    repo: str
    path: str
    url: str
    commit: str
    sha256: str
    nbytes: int


def source_of(repo: str, path: str, endpoint: str | None) -> Source | None:
    """What the hub says about a file; None when it names no SHA-256 (small files have another hash)."""
    url = huggingface_hub.hf_hub_url(repo, path, endpoint=endpoint)
    found = huggingface_hub.get_hf_file_metadata(url, endpoint=endpoint)
    if not found.etag or len(found.etag) != SHA256 or found.commit_hash is None or found.size is None:
        return None
    return Source(repo, path, url, found.commit_hash, found.etag, found.size)


def download(source: Source, cache: Path, said: Said) -> Path:
    """Bring the file into `cache` -> its path there; CheckpointError for other bytes than were published."""
    root = cache / repo_folder_name(repo_id=source.repo, repo_type="model")
    blob = root / "blobs" / source.sha256
    blob.parent.mkdir(parents=True, exist_ok=True)
    with alone(root / "blobs" / f".{source.sha256}.lock", source.path):
        if not blob.exists():
            part = blob.with_name(f"{source.sha256}.incomplete")
            _fetch(source, part, said)
            _check(source, part, said)
            part.rename(blob)
    return _link(source, root, blob)


def _fetch(source: Source, part: Path, said: Said) -> None:
    have = part.stat().st_size if part.exists() else 0
    if have > source.nbytes:
        part.unlink()
        have = 0
    with part.open("ab") as file:
        http_get(
            source.url,
            file,
            resume_size=have,
            headers=build_hf_headers(),
            expected_size=source.nbytes,
            displayed_filename=source.path,
            tqdm_class=telling(said, source.path),
        )


def _check(source: Source, part: Path, said: Said) -> None:
    digest, done = hashlib.sha256(), 0
    with part.open("rb") as file:
        while piece := file.read(1 << 24):
            digest.update(piece)
            done += len(piece)
            said(f"checking {source.path}", done, source.nbytes)
    if digest.hexdigest() != source.sha256:
        part.unlink()
        raise CheckpointError(
            f"{source.repo}: {source.path}: expected bytes with the SHA-256 {source.sha256[:16]}..., "
            f"found {digest.hexdigest()[:16]}...",
            "nothing was kept; pull it again",
        )


def _link(source: Source, root: Path, blob: Path) -> Path:
    """The file's name in the snapshot of its commit, which is the branch's from now on."""
    target = root / "snapshots" / source.commit / source.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_symlink():
        target.symlink_to(os.path.relpath(blob, target.parent))
    reference = root / "refs" / "main"
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(source.commit)
    return target


@contextmanager
def alone(lock: Path, path: str) -> Iterator[None]:
    """Only one process at a time downloads a file; StrataError for the second."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StrataError(f"{path}: another process is downloading it", "wait for that one") from error
        yield
        lock.unlink()


def telling(said: Said, path: str) -> Any:
    """A class of progress bars that show nothing and tell `said`."""

    class Told(tqdm):  # type: ignore[misc]
        def display(self, *_: object, **__: object) -> None:
            """Nothing."""

        def update(self, n: float | None = 1) -> bool | None:
            """`n` more bytes have come."""
            self.n += n or 0
            said(path, int(self.n), int(self.total or 0))
            return True

    return Told
