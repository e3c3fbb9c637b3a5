"""`strata parity`: the engine against the float64 reference, operation by operation."""

import json
import math
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from strata.chat.tokenizer import load_tokenizer
from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.locate import open_checkpoint
from strata.core.errors import UsageError
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.cubins import default_folder
from strata.kernels.devices import open_device
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.native import Native
from strata.kernels.ops import Ops
from strata.parity.compare import compare
from strata.parity.figures import Figure, Report
from strata.parity.forward import Reference, load
from strata.parity.production import engine, split
from strata.runtime.apart import Apart
from strata.state.memory import Memory

DRAWN_TOKENS = 48


def parity(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A .gguf file or a model folder.")],
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="Compare on this text.")] = "",
    tokens: Annotated[str, typer.Option("--tokens", help="Compare on these token ids, separated by commas.")] = "",
    chunks: Annotated[
        str, typer.Option("--chunks", help="Tokens per step, separated by commas; repeated to the end.")
    ] = "20,5,1,19",
    naive: Annotated[bool, typer.Option("--naive", help="Run the engine on its numpy operations.")] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="cpu|cuda|emulator", help="Where the engine's operations run.")
    ] = "cpu",
    json_: Annotated[bool, typer.Option("--json", help="Every figure, as one JSON object.")] = False,
) -> None:
    """Compare every operation of the engine with the float64 reference; exit 1 names the first one beyond tolerance."""
    ops, apart = operations(device, naive)
    with open_checkpoint(model) as checkpoint:
        reference = load(checkpoint)
        ids = chosen(checkpoint, reference, prompt, tokens)
        steps = split(len(ids), whole_numbers("--chunks", chunks, 1, 1 << 20))
        taps, logits = engine(ops, apart)(model, ids, steps)
        report = compare(reference, ids, taps, logits, len(steps))
    sys.stdout.write(as_json(report) if json_ else table(report))
    if report.first is not None:
        sys.stderr.write(f"parity: first operation beyond tolerance: {report.first}\n")
        raise typer.Exit(1)


def operations(device: str, naive: bool) -> tuple[Ops, Apart | None]:
    """What the engine computes with, and where; all experts are where the other weights are."""
    if device == "cpu":
        return (NaiveOps() if naive else CpuOps(Native())), None
    if naive:
        raise UsageError(f"--device {device}: the naive operations run on the CPU", "leave one of them out")
    opened = open_device(device, default_folder(os.environ))
    apart = Apart(opened.name, Memory(opened.torch_device, apart=True), CpuOps(Native()))
    return GpuOps(opened), apart


def chosen(checkpoint: Checkpoint, reference: Reference, prompt: str, tokens: str) -> list[int]:
    """The sequence to compare on; without a wish, ids drawn with a fixed seed."""
    size = reference.settings.vocabulary
    if prompt and tokens:
        raise UsageError("--prompt and --tokens: expected one of them, found both")
    if tokens:
        return whole_numbers("--tokens", tokens, 0, size - 1)
    if prompt:
        return load_tokenizer(checkpoint).encode(prompt)
    draw = random.Random(0)
    return [draw.randrange(size) for _ in range(DRAWN_TOKENS)]


def whole_numbers(option: str, text: str, low: int, high: int) -> list[int]:
    """Numbers separated by commas, each from `low` to `high`."""
    parts = [p.strip() for p in text.split(",")]
    wrong = [p for p in parts if not (p.isascii() and p.isdigit() and low <= int(p) <= high)]
    if wrong:
        raise UsageError(f"{option}: expected numbers from {low} to {high}, found {wrong[0]!r:.60}")
    return [int(p) for p in parts]


def table(report: Report) -> str:
    """One line per kind of operation: layers, worst figure, tolerance, where."""
    lines: list[Sequence[str]] = [("operation", "layers", "worst", "tolerance", "where")]
    for name, layers, worst in report.rows():
        mark = "" if worst.passed else "  <- beyond"
        lines.append((name, str(layers), shown(worst.worst), shown(worst.tolerance), worst.op + mark))
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    text = "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)
    kind = "quantised matrices" if report.quantised else "plain floats"
    return f"{text}\n{len(report.figures)} figures on {report.tokens} tokens, {kind}\n"


def shown(value: float) -> str:
    """A figure in three digits; nothing to compare is infinite."""
    return "-" if math.isinf(value) else f"{value:.3g}"


def as_json(report: Report) -> str:
    """Every figure; what could not be compared has null for its value."""

    def plain(f: Figure) -> dict[str, object]:
        worst = f.worst if math.isfinite(f.worst) else None
        return {
            "op": f.op,
            "part": f.part,
            "worst": worst,
            "tolerance": f.tolerance,
            "passed": f.passed,
            "note": f.note,
        }

    first = None if report.first is None else plain(report.first)
    body = {
        "passed": report.first is None,
        "first": first,
        "tokens": report.tokens,
        "quantised": report.quantised,
        "figures": [plain(f) for f in report.figures],
    }
    return json.dumps(body, allow_nan=False) + "\n"
