"""What `convert`, `quantize` and `synth` share: the target's checks, tables and JSON."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strata.convert.report import deviations, totals, whole
from strata.convert.types import Choice
from strata.core.errors import UsageError

_RIGHT = ("tensors", "values", "bytes", "bits/value")


def check_target(target: Path, force: bool, sources: Sequence[Path] = (), folder: Path | None = None) -> None:
    """UsageError when `target` is a folder, lies nowhere, exists (without `force`), or is one of the source's files."""
    if target.is_dir():
        raise UsageError(f"{target}: expected the name of a file to write, found a folder", "add a name: OUT.gguf")
    if not target.parent.is_dir():
        raise UsageError(f"{target}: the folder {target.parent} does not exist")
    if not target.exists():
        return
    inside = folder is not None and target.resolve().parent == folder.resolve() and target.suffix != ".gguf"
    if inside or any(target.samefile(source) for source in sources):
        raise UsageError(f"{target}: would overwrite its own source", "name another file")
    if not force:
        raise UsageError(f"{target}: exists", "--force overwrites it")


def check_room(target: Path, choices: Sequence[Choice]) -> None:
    """UsageError when the disk cannot hold the new file (beside an old one, until that is replaced)."""
    needed, free = whole(choices).nbytes, shutil.disk_usage(target.parent).free
    if needed > free:
        raise UsageError(f"{target}: needs {needed:,} bytes, the disk has {free:,} free", "name a file on another disk")


def show(choices: Sequence[Choice], source: str, target: Path, written: bool, as_json: bool) -> None:
    """The formats, and why tensors did not get what was asked for, on stdout."""
    if as_json:
        sys.stdout.write(json.dumps(_json(choices, source, target, written), allow_nan=False) + "\n")
        return
    out = Console(soft_wrap=True, highlight=False)
    rows = [(r.name, f"{r.tensors:,}", f"{r.values:,}", f"{r.nbytes:,}", f"{r.bits:.3f}") for r in totals(choices)]
    all_ = whole(choices)
    rows.append(("all", f"{all_.tensors:,}", f"{all_.values:,}", f"{all_.nbytes:,}", f"{all_.bits:.3f}"))
    _table(out, f"{target}{'' if written else ' (not written)'}", ("format", *_RIGHT), rows)
    others = [(d.format, f"{d.tensors:,}", d.asked, f"{d.reason}: {', '.join(d.names)}") for d in deviations(choices)]
    if others:
        _table(out, "Other than asked", ("format", "tensors", "asked", "why"), others)


def _table(out: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if out.is_terminal:
        table = Table(title=Text(title), title_justify="left", title_style="bold")
        for head in heads:
            table.add_column(head, justify="right" if head in _RIGHT else "left", overflow="fold")
        for row in rows:
            # Text, not str: names with brackets are no markup
            table.add_row(*(Text(cell) for cell in row))
        out.print(table)
        return
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    out.print(Text(title))
    for line in (heads, *rows):
        cells = [
            cell.rjust(width) if head in _RIGHT else cell.ljust(width)
            for head, cell, width in zip(heads, line, widths, strict=True)
        ]
        out.print(Text("  " + "  ".join(cells).rstrip()))
    out.print()


def _json(choices: Sequence[Choice], source: str, target: Path, written: bool) -> dict[str, object]:
    all_ = whole(choices)
    return {
        "source": source,
        "target": str(target),
        "written": written,
        "values": all_.values,
        "bytes": all_.nbytes,
        "bits_per_value": all_.bits,
        "formats": [
            {"format": r.name, "tensors": r.tensors, "values": r.values, "bytes": r.nbytes} for r in totals(choices)
        ],
        "tensors": [
            {
                "name": c.item.name,
                "shape": list(c.item.shape),
                "stored": c.item.stored,
                "asked": c.asked,
                "asked_by": c.wish,
                "format": c.format.name,
                "bytes": c.nbytes,
                "copied": c.copied,
                "reason": c.reason,
            }
            for c in choices
        ],
    }
