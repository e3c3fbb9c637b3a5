"""Which files of a repository are the model that was asked for. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from strata.checkpoint.gguf import shard_of
from strata.core.errors import UsageError
from strata.hub.name import HubName

USUAL = ("Q4_K_M", "Q4_K_S", "Q4_K", "IQ4_XS", "Q5_K_M", "Q6_K", "Q8_0")
"""What is taken of several quantisations when none was named: the first of these."""
BESIDE = re.compile(r"mmproj|imatrix|^mtp-", re.IGNORECASE)
"""GGUF files that are no model of their own: vision, statistics, a drafting head."""
AROUND = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    *("model.safetensors.index.json", "special_tokens_map.json", "vocab.json", "merges.txt", "added_tokens.json"),
)
"""What a safetensors folder needs beside its weights, as far as it is there."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository."""

    path: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files of one model."""

    files: tuple[RemoteFile, ...]
    opened: str
    """What is opened of them: the (first) GGUF file; empty: the folder."""

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.nbytes for file in self.files)


def choose_files(name: HubName, files: Sequence[RemoteFile]) -> Chosen:
    """The model that `name` means among `files`; UsageError when there is none, or more than one."""
    models = gguf_models(files)
    if models:
        return _of_models(name, models)
    weights = [file for file in files if "/" not in file.path and file.path.endswith(".safetensors")]
    if not weights:
        raise UsageError(f"{name.repo}: expected a .gguf or .safetensors file, found none of {len(files)} files")
    if name.quant:
        raise UsageError(
            f"{name}: the repository has no GGUF file, so there is no {name.quant} to choose",
            f"strata serve {name.repo} takes its safetensors",
        )
    around = [file for file in files if file.path in AROUND]
    return Chosen(tuple(sorted([*weights, *around], key=lambda file: file.path)), "")


def gguf_models(files: Iterable[RemoteFile]) -> Mapping[str, tuple[RemoteFile, ...]]:
    """The GGUF models by what their names say, each with all files of its split; UsageError for an incomplete one."""
    found: dict[str, list[RemoteFile]] = {}
    for file in files:
        path = PurePosixPath(file.path)
        if path.suffix != ".gguf" or BESIDE.search(path.name):
            continue
        shard = shard_of(path.name)
        stem = path.name.removesuffix(".gguf") if shard is None else shard.stem
        found.setdefault(str(path.with_name(stem)), []).append(file)
    models = {}
    for stem, parts in found.items():
        parts.sort(key=lambda file: file.path)
        shard = shard_of(PurePosixPath(parts[0].path).name)
        if shard is not None and len(parts) != shard.total:
            raise UsageError(f"{stem}: expected {shard.total} files of a split, found {len(parts)}")
        models[stem] = tuple(parts)
    return models


def _of_models(name: HubName, models: Mapping[str, tuple[RemoteFile, ...]]) -> Chosen:
    wanted = [name.quant] if name.quant else list(USUAL)
    if not name.quant and len(models) == 1:
        return _chosen(next(iter(models.values())))
    for quant in wanted:
        fits = [parts for stem, parts in models.items() if says(stem, quant)]
        if len(fits) == 1:
            return _chosen(fits[0])
        if fits:
            raise UsageError(f"{name}: {len(fits)} models are called {quant}: {listed(models)}", "name more of it")
    have = f"the repository has {listed(models)}"
    if name.quant:
        raise UsageError(f"{name}: no GGUF file is called {name.quant}; {have}")
    raise UsageError(f"{name}: which one? {have}", f"strata pull {name.repo}:QUANT")


def says(stem: str, quant: str) -> bool:
    """Whether a file's name (or folder) has `quant` as a word: Q4_K is none of Q4_K_M."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(quant)}(?![A-Za-z0-9_])", stem, re.IGNORECASE) is not None


def listed(models: Mapping[str, tuple[RemoteFile, ...]]) -> str:
    """The models with their sizes, as a sentence has them."""
    texts = [
        f"{PurePosixPath(stem).name} ({sum(file.nbytes for file in parts) / 1e9:.1f} GB)"
        for stem, parts in sorted(models.items())
    ]
    return ", ".join(texts[:24]) + (f" and {len(texts) - 24} more" if len(texts) > 24 else "")


def _chosen(parts: tuple[RemoteFile, ...]) -> Chosen:
    return Chosen(parts, parts[0].path)
