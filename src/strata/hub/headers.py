"""A model's headers without its weights: enough to inspect and plan before a download.

The files are made in full length, but only their headers are filled: what was not written takes no room on the disk.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import huggingface_hub
from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]  # lazily

from strata.checkpoint.demo import model_path
from strata.checkpoint.locate import open_checkpoint
from strata.core.errors import CheckpointError, StrataError
from strata.hub.cached import find
from strata.hub.choose import RemoteFile, choose_files
from strata.hub.hub import Hub, reaching
from strata.hub.name import HubName, hub_name

FIRST = 8 << 20
"""Bytes of a file that are read first: most headers with a tokenizer are shorter."""
MOST = 256 << 20


@contextmanager
def headers_of(model: str | None, hub: Hub) -> Iterator[Path]:
    """A path whose headers can be read: the model where it is, or the hub's headers for as long as they are needed."""
    name = None if model is None else hub_name(model)
    here = model_path(model) if name is None else find(hub.cache, name)
    if name is None or here is not None:
        assert here is not None, "a path of its own, or the cache's"
        yield here
        return
    with tempfile.TemporaryDirectory(prefix="strata-headers-") as folder:
        yield fetch_headers(hub, name, Path(folder))


def fetch_headers(hub: Hub, name: HubName, folder: Path) -> Path:
    """Write the model's files into `folder` with nothing but their headers -> what is opened of them."""
    chosen = choose_files(name, hub.files(name))
    for file in chosen.files:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        small = not file.path.endswith((".gguf", ".safetensors"))
        fill(hub, name, file, target, file.nbytes if small else FIRST)
    opened = folder / chosen.opened if chosen.opened else folder
    length = FIRST
    while True:
        try:
            with open_checkpoint(opened):
                return opened
        except CheckpointError:
            # A header that goes on behind what was read looks damaged; one that is damaged stays so.
            if length >= MOST:
                raise
        length *= 4
        for file in chosen.files:
            if file.path.endswith((".gguf", ".safetensors")):
                fill(hub, name, file, folder / file.path, length)


def fill(hub: Hub, name: HubName, file: RemoteFile, target: Path, length: int) -> None:
    """The first `length` bytes of a file, in a file of its full size."""
    url = huggingface_hub.hf_hub_url(name.repo, file.path, endpoint=hub.endpoint)
    wanted = min(length, file.nbytes)
    with reaching(name), target.open("wb") as out:
        ranged = {"Range": f"bytes=0-{wanted - 1}"} if wanted < file.nbytes else {}
        if wanted:
            with get_session().stream("GET", url, headers={**build_hf_headers(), **ranged}, follow_redirects=True) as r:
                out.write(first_bytes(r, wanted, file.path))
        out.truncate(file.nbytes)


def first_bytes(response: httpx2.Response, wanted: int, path: str) -> bytes:
    """So many bytes of an answer, whether or not the server honours ranges; StrataError when there are fewer."""
    if response.is_error:
        raise StrataError(f"{path}: the hub answered with status {response.status_code}")
    pieces, have = [], 0
    for piece in response.iter_bytes():
        pieces.append(piece)
        have += len(piece)
        if have >= wanted:
            break
    if have < wanted:
        raise StrataError(f"{path}: expected {wanted} bytes of the hub, found {have}")
    return b"".join(pieces)[:wanted]
