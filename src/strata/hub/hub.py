"""The hub over HTTP and its cache on disk, in the layout that other tools share."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import httpx2
import huggingface_hub
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from strata.core.errors import StrataError, UsageError
from strata.hub.cached import find
from strata.hub.choose import Chosen, RemoteFile, choose_files, gguf_models
from strata.hub.download import download, source_of, telling
from strata.hub.name import HubName, Said

SPARE_BYTES = 256 << 20
"""Of the disk, what a download leaves free."""
MOST_OVER_HTTP = 50 * 10**9
"""Bytes of a file that the hub sends over plain HTTP; larger ones need the library's own way, which starts again."""


@dataclass(frozen=True, slots=True)
class Hub:
    """Where models come from, and where they are kept. None: as HF_ENDPOINT and HF_HOME say; HF_TOKEN opens doors."""

    endpoint: str | None = None
    folder: Path | None = None

    @property
    def cache(self) -> Path:
        """The cache's folder."""
        return self.folder if self.folder is not None else Path(huggingface_hub.constants.HF_HUB_CACHE)

    def files(self, name: HubName) -> list[RemoteFile]:
        """All files of a repository, as the hub has them now. StrataError when it cannot be reached or refuses."""
        api = huggingface_hub.HfApi(endpoint=self.endpoint)
        with reaching(name):
            tree = list(api.list_repo_tree(name.repo, recursive=True))
        return [RemoteFile(entry.path, entry.size) for entry in tree if isinstance(entry, huggingface_hub.RepoFile)]

    def offers(self, name: HubName) -> list[tuple[str, int]]:
        """(name as a command takes it, bytes) of every model in a repository."""
        files = self.files(name)
        models = gguf_models(files)
        if not models:
            return [(name.repo, choose_files(name, files).nbytes)]
        sizes = {stem: sum(file.nbytes for file in parts) for stem, parts in sorted(models.items())}
        return [(f"{name.repo}:{PurePosixPath(stem).name}", nbytes) for stem, nbytes in sizes.items()]

    def find(self, name: HubName) -> Path | None:
        """What is opened of a model that the cache holds; None when it, or a part of it, is not there."""
        return find(self.cache, name)

    def pull(self, name: HubName, said: Said) -> Path:
        """Download what of the model is not here yet, going on where an earlier try ended -> what is opened.

        StrataError when the hub refuses, the disk is too small, or bytes are not those that were published.
        """
        chosen = choose_files(name, self.files(name))
        missing = [file for file in chosen.files if self._held(name, file.path) is None]
        self._check_room(name, sum(file.nbytes for file in missing))
        at = None
        for file in weights_last(chosen):
            at = self._get(name, file, said)
        assert at is not None, "a model has a file"
        return self._opened(name, chosen, at)

    def _get(self, name: HubName, file: RemoteFile, said: Said) -> Path:
        with reaching(name):
            source = source_of(name.repo, file.path, self.endpoint)
            if source is not None and source.nbytes <= MOST_OVER_HTTP:
                return download(source, self.cache, said)
            bars = telling(said, file.path)
            path = huggingface_hub.hf_hub_download(
                name.repo, file.path, cache_dir=self.cache, endpoint=self.endpoint, tqdm_class=bars
            )
        return Path(path)

    def _held(self, name: HubName, path: str) -> Path | None:
        found = huggingface_hub.try_to_load_from_cache(name.repo, path, cache_dir=self.cache)
        return Path(found) if isinstance(found, str) else None

    def _opened(self, name: HubName, chosen: Chosen, last: Path) -> Path:
        if chosen.opened:
            held = self._held(name, chosen.opened)
            assert held is not None, "it was downloaded"
            return held
        return last.parent

    def _check_room(self, name: HubName, nbytes: int) -> None:
        there = next(folder for folder in (self.cache, *self.cache.parents) if folder.is_dir())
        free = shutil.disk_usage(there).free
        if nbytes + SPARE_BYTES > free:
            raise StrataError(
                f"{name}: {nbytes / 1e9:.1f} GB are missing, {there} has {free / 1e9:.1f} GB free",
                "strata list shows what the cache holds, strata rm takes something away; HF_HOME puts it elsewhere",
            )


def weights_last(chosen: Chosen) -> list[RemoteFile]:
    """The small files first: who finds all weights in the cache finds what belongs to them, too."""
    return sorted(chosen.files, key=lambda file: (file.path.endswith((".safetensors", ".gguf")), file.path))


@contextmanager
def reaching(name: HubName) -> Iterator[None]:
    """What can go wrong on the way to the hub, as one sentence."""
    try:
        yield
    except GatedRepoError as error:
        raise StrataError(
            f"{name.repo}: its owners ask for their conditions to be accepted first",
            "accept them on the model's page, then set HF_TOKEN",
        ) from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"{name.repo}: the hub has no such model, or not for you", "check the name; HF_TOKEN opens private ones"
        ) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, httpx2.TransportError) as error:
        raise StrataError(
            f"{name.repo}: the hub cannot be reached: {str(error).splitlines()[0][:200]}",
            "strata list shows what is here already; HF_ENDPOINT names another hub",
        ) from error
    except EntryNotFoundError as error:
        raise StrataError(f"{name.repo}: a file is gone from the hub: {str(error).splitlines()[0][:200]}") from error
    except HfHubHTTPError as error:
        raise StrataError(f"{name.repo}: the hub answered: {str(error).splitlines()[0][:200]}") from error
