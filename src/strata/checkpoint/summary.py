"""What a person wants to know about a model's files, from their headers alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from strata.checkpoint.jsonfile import read_object
from strata.checkpoint.locate import OpenCheckpoint
from strata.checkpoint.metadata import Value
from strata.checkpoint.tensor import TensorRef

_ID_SUFFIX = "_token_id"
_TEMPLATE = "tokenizer.chat_template"
_TOKENIZER_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class FormatRow:
    """All tensors of one format."""

    name: str
    tensors: int
    values: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class TokenizerSummary:
    """What the files say about the vocabulary; None where they do not."""

    model: str | None
    pre: str | None
    size: int
    special_ids: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Summary:
    """One model; `tensors` by the names that loaders use."""

    path: Path
    kind: str
    architecture: str | None
    files: tuple[tuple[Path, int], ...]
    """Each file with its size in bytes."""
    parameters: int
    """Values of all tensors but those that are data (ids, masks, packed codes)."""
    nbytes: int
    """Bytes of all tensors."""
    formats: tuple[FormatRow, ...]
    metadata: Mapping[str, Value]
    tokenizer: TokenizerSummary | None
    templates: tuple[str, ...]
    """Where chat templates were found: key or file names."""
    tensors: Mapping[str, TensorRef]
    notes: tuple[str, ...]

    @property
    def bits_per_weight(self) -> float:
        """Mean bits of a parameter, scales included (0 for a file without any)."""
        weights = sum(row.nbytes for row in self.formats) - _data_bytes(self.tensors)
        return 8 * weights / self.parameters if self.parameters else 0.0


def summarize(checkpoint: OpenCheckpoint) -> Summary:
    """Summarize an open checkpoint; of a folder it also reads the tokenizer's files."""
    refs = checkpoint.tensors.values()
    in_folder = checkpoint.kind == "safetensors"
    values = checkpoint.metadata.values
    return Summary(
        path=checkpoint.path,
        kind=checkpoint.kind,
        architecture=_text(values.get("model_type" if in_folder else "general.architecture")),
        files=tuple(checkpoint.file_bytes.items()),
        parameters=sum(ref.count for ref in refs if ref.format.kind != "data"),
        nbytes=sum(ref.nbytes for ref in refs),
        formats=_formats(checkpoint.tensors),
        metadata=values,
        tokenizer=_folder_tokenizer(checkpoint.path, values) if in_folder else _gguf_tokenizer(values),
        templates=_folder_templates(checkpoint.path) if in_folder else _gguf_templates(values),
        tensors=checkpoint.tensors,
        notes=checkpoint.notes,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _data_bytes(tensors: Mapping[str, TensorRef]) -> int:
    return sum(ref.nbytes for ref in tensors.values() if ref.format.kind == "data")


def _formats(tensors: Mapping[str, TensorRef]) -> tuple[FormatRow, ...]:
    """One row per format, the one with the most bytes first."""
    groups: dict[str, list[TensorRef]] = {}
    for ref in tensors.values():
        groups.setdefault(ref.format.name, []).append(ref)
    rows = [
        FormatRow(name, len(refs), sum(r.count for r in refs), sum(r.nbytes for r in refs))
        for name, refs in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.nbytes, row.name)))


def _gguf_tokenizer(values: Mapping[str, Value]) -> TokenizerSummary | None:
    prefix = "tokenizer.ggml."
    if not any(key.startswith(prefix) for key in values):
        return None
    tokens = values.get(f"{prefix}tokens")
    size = len(tokens) if isinstance(tokens, tuple) else 0
    ids = {
        key.removeprefix(prefix).removesuffix(_ID_SUFFIX): value
        for key, value in values.items()
        if key.startswith(prefix) and key.endswith(_ID_SUFFIX)
    }
    return TokenizerSummary(_text(values.get(f"{prefix}model")), _text(values.get(f"{prefix}pre")), size, ids)


def _gguf_templates(values: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(
        k for k, v in values.items() if isinstance(v, str) and (k == _TEMPLATE or k.startswith(f"{_TEMPLATE}."))
    )


def _folder_tokenizer(folder: Path, values: Mapping[str, Value]) -> TokenizerSummary | None:
    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    content = read_object(path, _TOKENIZER_BYTES)
    model, added = content.get("model"), content.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    names: set[object] = set(vocabulary) if isinstance(vocabulary, dict) else set()
    if isinstance(added, list):
        names |= {item["content"] for item in added if isinstance(item, dict) and isinstance(item.get("content"), str)}
    ids = {
        key.removesuffix(_ID_SUFFIX): value
        for key, value in values.items()
        if key.removeprefix("generation.").count(".") == 0 and key.endswith(_ID_SUFFIX) and value is not None
    }
    kind = _text(model.get("type")) if isinstance(model, dict) else None
    return TokenizerSummary(kind, None, len(names), ids)


def _folder_templates(folder: Path) -> tuple[str, ...]:
    found = [name for name in ("chat_template.jinja", "chat_template.json") if (folder / name).is_file()]
    config = folder / "tokenizer_config.json"
    if config.exists() and read_object(config, _TOKENIZER_BYTES).get("chat_template"):
        found.append(config.name)
    return tuple(found)
