"""`strata inspect`: what is inside a model's files."""

import fnmatch
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from strata.checkpoint.locate import open_checkpoint
from strata.checkpoint.metadata import Scalar, Value
from strata.checkpoint.summary import Summary, summarize
from strata.checkpoint.tensor import TensorRef
from strata.cli.tables import Rows, show_table
from strata.core.errors import UsageError
from strata.hub.headers import headers_of
from strata.hub.hub import Hub

_ITEMS = 6
_WIDTH = 72


def inspect(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A .gguf file, a model folder, or org/name[:QUANT] on the hub.")
    ],
    json_: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    tensors: Annotated[str, typer.Option("--tensors", help="How many tensors to list: a number, or all.")] = "20",
    match: Annotated[
        str, typer.Option("--filter", help="List tensors whose name contains this text (* and ? match anything).")
    ] = "",
) -> None:
    """Show a model's tensors, formats, sizes, metadata, tokenizer and template, from its headers."""
    limit = _limit(tensors)
    with headers_of(model, Hub()) as path, open_checkpoint(path) as checkpoint:
        summary = summarize(checkpoint)
    chosen = {name: ref for name, ref in summary.tensors.items() if _matches(name, match)}
    if json_:
        sys.stdout.write(json.dumps(_json(summary, chosen), allow_nan=False) + "\n")
        return
    show_table("Model", (), _overview(summary))
    show_table("Formats", ("format", "tensors", "values", "bytes"), _formats(summary), right=(1, 2, 3))
    show_table("Metadata", ("key", "value"), [(key, _short(value)) for key, value in summary.metadata.items()])
    listed = list(chosen.items())[:limit]
    rows = [
        (name, " x ".join(map(str, ref.shape)) or "1", ref.format.name, f"{ref.nbytes:,}", ref.file.name)
        for name, ref in listed
    ]
    of = f"{len(chosen):,} of {len(summary.tensors):,} match" if match else f"{len(chosen):,}"
    more = "" if len(listed) == len(chosen) else f", {len(listed)} shown: --tensors all lists them"
    show_table(f"Tensors ({of}{more})", ("name", "shape", "format", "bytes", "file"), rows, right=(3,))


def _limit(text: str) -> int | None:
    """The number of tensors to list; None for all."""
    if text == "all":
        return None
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--tensors: expected a number or all, found {text!r:.60}")
    return int(text)


def _matches(name: str, pattern: str) -> bool:
    """As grep would: the text anywhere in the name, with shell wildcards."""
    return fnmatch.fnmatchcase(name, f"*{pattern.replace('[', '[[]')}*")


def _overview(summary: Summary) -> Rows:
    total = sum(size for _, size in summary.files)
    rows = [
        ("path", str(summary.path)),
        ("kind", summary.kind),
        ("architecture", summary.architecture or "not said"),
        ("files", f"{len(summary.files)} ({total:,} bytes)"),
        ("parameters", f"{summary.parameters:,}"),
        ("tensor bytes", f"{summary.nbytes:,}"),
        ("bits per weight", f"{summary.bits_per_weight:.3f}"),
    ]
    tokenizer = summary.tokenizer
    if tokenizer is None:
        rows.append(("tokenizer", "none"))
    else:
        rows.append(("tokenizer", f"{tokenizer.model or 'not said'}, {tokenizer.size:,} tokens"))
        rows.extend([("pre-tokenizer", tokenizer.pre)] if tokenizer.pre else [])
        rows.extend((f"token id {name}", _short(value)) for name, value in tokenizer.special_ids.items())
    rows.append(("chat template", ", ".join(summary.templates) or "none"))
    rows.extend(("note", note) for note in summary.notes)
    return [(name, _printable(text)) for name, text in rows]


def _formats(summary: Summary) -> Rows:
    return [(row.name, f"{row.tensors:,}", f"{row.values:,}", f"{row.nbytes:,}") for row in summary.formats]


def _short(value: Value) -> str:
    """A value in one line: long texts are cut, of long arrays the first items and the count are shown."""
    if isinstance(value, str):
        text = _printable(value)
        return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(value):,} characters)"
    if isinstance(value, Sequence):
        shown = ", ".join(_short(item) for item in value[:_ITEMS])
        return f"[{shown}]" if len(value) <= _ITEMS else f"[{shown}, ...] ({len(value):,} items)"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _printable(text: str) -> str:
    """Control characters escaped: a file must not steer the terminal it is shown on."""
    return text if text.isprintable() else repr(text)[1:-1]


def _json(summary: Summary, tensors: Mapping[str, TensorRef]) -> dict[str, object]:
    tokenizer = summary.tokenizer
    return {
        "path": str(summary.path),
        "kind": summary.kind,
        "architecture": summary.architecture,
        "files": [{"path": str(path), "bytes": size} for path, size in summary.files],
        "parameters": summary.parameters,
        "bytes": summary.nbytes,
        "bits_per_weight": summary.bits_per_weight,
        "formats": [
            {"format": r.name, "tensors": r.tensors, "values": r.values, "bytes": r.nbytes} for r in summary.formats
        ],
        "metadata": {key: _json_value(value) for key, value in summary.metadata.items()},
        "tokenizer": tokenizer
        and {
            "model": tokenizer.model,
            "pre": tokenizer.pre,
            "size": tokenizer.size,
            "special_ids": {name: _json_value(value) for name, value in tokenizer.special_ids.items()},
        },
        "chat_templates": list(summary.templates),
        "notes": list(summary.notes),
        "tensors": [
            {
                "name": name,
                "stored_name": ref.name,
                "shape": list(ref.shape),
                "format": ref.format.name,
                "offset": ref.offset,
                "bytes": ref.nbytes,
                "file": str(ref.file),
            }
            for name, ref in tensors.items()
        ],
    }


def _json_value(value: Value) -> object:
    """JSON has no NaN and no infinity: they become the texts "nan", "inf" and "-inf"."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_json_scalar(item) for item in value]
    return value if value is None else _json_scalar(value)


def _json_scalar(value: Scalar) -> Scalar:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
