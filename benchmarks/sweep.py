"""What a decode step costs against context, layers, experts per token and rows, beside what the memory gives.

    PYTHONPATH=src python benchmarks/sweep.py [--folder /tmp/sweep] [--over context ...] [--seconds 50] [--out FILE]

Random models of one shape (hidden 1,024, 64 experts of width 512, Q4_K and Q6_K) with one size changed at a time; ids
drawn at random. One child process and one JSON line per point; what --out already holds is not run again, with
--seconds nothing is started that would probably end later (exit code 3 while something is missing). --folder keeps the
models (up to 2 GB each); a model is written when its point is measured.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from child import watched
from peers import ROOT, strata

from strata.checks.company import DISTURBED
from strata.convert.shapes import REAL, Shape
from strata.convert.synth import synth
from strata.convert.types import Types

Line = dict[str, Any]

BASE = replace(
    REAL["qwen3moe"],
    hidden=1024,
    layers=6,
    heads=8,
    kv_heads=2,
    experts=64,
    top_k=8,
    width=512,
    vocabulary=16384,
)
TRIES = 3


@dataclass(frozen=True, slots=True)
class Point:
    """One point of one curve."""

    over: str
    at: int
    shape: Shape = BASE
    context: int = 0
    slots: int = 1

    @property
    def file(self) -> str:
        """The model's name."""
        return f"sweep-{self.shape.layers}-layers-{self.shape.top_k}-of-{self.shape.experts}.gguf"


POINTS = (
    *(Point("context", n, context=n) for n in (0, 1024, 4096, 8192, 16384)),
    *(Point("layers", n, replace(BASE, layers=n)) for n in (3, 6, 12, 24)),
    *(Point("experts per token", n, replace(BASE, top_k=n)) for n in (2, 4, 8, 16, 32)),
    *(Point("rows", n, slots=n) for n in (1, 2, 4, 8, 16, 32)),
)


def model_of(point: Point, folder: Path) -> Path:
    """The point's model, written when it is not there."""
    path = folder / point.file
    if not path.is_file():
        synth(path, point.shape, Types("Q8_0", "Q4_K", "Q6_K"), 1, 0.0, lambda tensor, done, total: None)
    return path


def measure(point: Point, options: argparse.Namespace) -> tuple[Line, bool]:
    """One point with the memory's rate measured beside it, and whether nothing disturbed it."""
    model = model_of(point, options.folder)
    shared = ["--threads", str(options.threads), "--json"]
    words = ["decode", str(model), "--context", str(point.context), "--slots", str(point.slots), "--tokens", "32"]
    words += ["--repeat", str(options.repeat), "--drawn"]
    runs = [
        watched([*strata(options.ours), "bench", *each, *shared], options.through.split())
        for each in (["kernels", "--only", "read"], words)
    ]
    read, line = (json.loads(run.out) for run in runs)
    shares = [run.company for run in runs if run.company is not None]
    line = {"sweep": point.over, "at": point.at, "read_gb_per_second": read["gb_per_second"], **line}
    return line, max(shares, default=0.0) <= options.company


def run(options: argparse.Namespace, lines: list[Line]) -> bool:
    """Measure what is missing, as far as the time goes; whether nothing is missing now."""
    started, longest = time.perf_counter(), 0.0
    for point in POINTS:
        if options.over and point.over not in options.over:
            continue
        tries = 0
        while tries < TRIES and not any((x["sweep"], x["at"]) == (point.over, point.at) for x in lines):
            tries += 1
            before = time.perf_counter()
            if options.seconds and before - started + longest > options.seconds:
                return False
            line, alone = measure(point, options)
            longest = max(longest, time.perf_counter() - before)
            sys.stderr.write(
                f"{point.over:18} {point.at:6} {line['tokens_per_second']['median']:8.2f} tok/s"
                f" {line['gb_per_second']:6.1f} of {line['read_gb_per_second']:.1f} GB/s"
                f"{'' if alone else '  (disturbed)'}\n"
            )
            if alone:
                lines.append(line)
                with options.out.open("a") as out:
                    out.write(json.dumps(line) + "\n")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/sweep"))
    parser.add_argument("--over", action="append", choices=sorted({p.over for p in POINTS}))
    parser.add_argument("--ours", type=Path, default=ROOT, help="a checkout; default: this one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--through", default="", help="a command that starts every process, e.g. in a quiet moment")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--company", type=float, default=DISTURBED)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "sweep.jsonl")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    lines = [json.loads(text) for text in options.out.read_text().splitlines()] if options.out.is_file() else []
    return 0 if run(options, lines) else 3


if __name__ == "__main__":
    sys.exit(main())
