"""Ours beside natively built llama.cpp and ik_llama.cpp on the same GGUF files, in turn, one at a time.

    PYTHONPATH=src python benchmarks/compare_peers.py MODEL.gguf ... --llama B/bin/llama-bench [--ik B/bin/llama-bench]
        [--test decode:0 --test prompt:512 ...] [--rounds 3] [--repeats 2] [--seconds 50] [--out FILE.jsonl]

Every run is one child process and one JSON line in --out; the engines take turns (A B C A B C ...). What --out already
holds is not run again (ours: of the same commit), so that a long comparison can be cut into pieces: with --seconds
nothing is started that would probably end later, and the exit code is 3 while something is missing. A run during which
other processes took more than --company of the processors does not count and is repeated. At the end: medians over all
repetitions, and ratios.

Settings: --threads for all; llama.cpp and ik_llama.cpp as they come (f16 keys and values, mapped files, repacking and
flash attention by their own choice); ours with keys and values in bfloat16, which take the same bytes. All read ids
drawn at random. Files are warm: every engine runs once before it counts. A plain read of memory by the same threads has
a turn too (`strata bench kernels --only read`), beside which what decoding moved is a share.
"""

import argparse
import datetime
import json
import re
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from child import watched
from peers import ROOT, TESTS, Engine, Figure, Ik, Llama, Memory, Ours, Run, figure_of

from strata.checks.company import DISTURBED
from strata.checks.facts import commit, processor

Line = dict[str, Any]

KV = "--kv-type bf16"

TRIES = 3
"""A run that company disturbed is repeated this often in one piece."""


def read_lines(path: Path) -> list[Line]:
    """What earlier pieces measured."""
    return [json.loads(text) for text in path.read_text().splitlines() if text] if path.is_file() else []


def counted(lines: Iterable[Line], engine: str, model: str, test: str, build: str | None = None) -> list[Line]:
    """The undisturbed lines of one engine, model and test; ours of one commit only (`build`, else the last one's)."""
    wanted = (engine, model, test)
    found = [x for x in lines if (x["engine"], x["model"], x["test"]) == wanted and not x["disturbed"]]
    of = build or (found[-1]["commit"] if found else None)
    return [x for x in found if x["commit"] is None or x["commit"] == of]


def build_of(engine: Engine) -> str | None:
    """The commit that our lines carry; peers carry none."""
    return commit(engine.checkout / "src" / "strata") if isinstance(engine, Ours) else None


def measure(engine: Engine, run: Run, through: Sequence[str], company: float) -> Line | None:
    """One line; None when the engine has no such test. RuntimeError when its process fails."""
    command = engine.command(run)
    if command is None:
        return None
    done = watched(command, through)
    share = done.company
    return {
        "bench": "peers",
        "engine": engine.name,
        "model": run.model.name,
        "model_bytes": run.model.stat().st_size,
        "test": run.test.name,
        "rates": engine.rates(run, done.out),
        **engine.details(done.out),
        # Where things lie on this machine says nothing to a reader elsewhere.
        "command": [re.sub(r"/\S*/", "", word) for word in command],
        "machine": {"cpu": processor(), "threads": run.threads},
        "commit": build_of(engine),
        "wall_seconds": done.wall_seconds,
        "company": share if share is None else round(share, 4),
        "disturbed": share is not None and share > company,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def turns(
    models: Sequence[Path], tests: Sequence[Figure], rounds: int, engines: Sequence[Engine]
) -> Iterator[tuple[Path, Figure, int, Engine]]:
    """Everything that is to be run, in order."""
    for model in models:
        for test in tests:
            for turn in range(rounds):
                for engine in engines:
                    yield model, test, turn, engine


def compare(options: argparse.Namespace, engines: Sequence[Engine], lines: list[Line]) -> bool:
    """Run what is missing, as far as the time goes; whether nothing is missing now."""
    deadline = time.perf_counter() + options.seconds if options.seconds else None
    for model, test, turn, engine in turns(options.models, options.test or TESTS, options.rounds, engines):
        run = Run(model, test, options.threads, options.repeats)
        tries = 0
        while len(counted(lines, engine.name, model.name, test.name, build_of(engine))) <= turn and tries < TRIES:
            tries += 1
            if deadline is not None and time.perf_counter() + expected(lines, engine, run) > deadline:
                return False
            line = measure(engine, run, options.through.split(), options.company)
            if line is None:
                break
            lines.append(line)
            with options.out.open("a") as out:
                out.write(json.dumps(line) + "\n")
            sys.stderr.write(
                f"{engine.name:13} {model.stem:24} {test.name:13} {statistics.median(line['rates']):9.2f} tok/s"
                f" {line['wall_seconds']:6.1f} s{'  (disturbed)' if line['disturbed'] else ''}\n"
            )
    return True


def expected(lines: Iterable[Line], engine: Engine, run: Run) -> float:
    """Seconds that a run will take: as an earlier one, or nothing when there was none."""
    same = counted(lines, engine.name, run.model.name, run.test.name)
    return max((x["wall_seconds"] for x in same), default=0.0)


def table(lines: Sequence[Line]) -> str:
    """Medians of all repetitions, and ours by each peer's."""
    models = list(dict.fromkeys(x["model"] for x in lines))
    names = ["strata", "llama.cpp", "ik_llama.cpp"]
    heads = ["model", "test", *names, "by llama.cpp", "by ik_llama.cpp", "our GB/s", "of a plain read"]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for model in models:
        for test in dict.fromkeys(x["test"] for x in lines if x["model"] == model):
            found = [[r for x in counted(lines, name, model, test) for r in x["rates"]] for name in names]
            middle = [statistics.median(rates) if rates else None for rates in found]
            cells = [
                "-" if m is None else f"{m:.1f} ({min(f):.1f} to {max(f):.1f})"
                for m, f in zip(middle, found, strict=True)
            ]
            ours = middle[0]
            ratios = ["-" if ours is None or peer is None else f"{ours / peer:.2f}" for peer in middle[1:]]
            moved = [x["gb_per_second"] for x in counted(lines, "strata", model, test) if x.get("gb_per_second")]
            moved_cell = f"{statistics.median(moved):.1f}" if moved else "-"
            share = share_of_read(lines, model, test, moved)
            name = model.removesuffix(".gguf")
            rows.append(f"| {name} | {test} | {' | '.join([*cells, *ratios, moved_cell, share])} |")
    return "\n".join(rows) + "\n"


def share_of_read(lines: Sequence[Line], model: str, test: str, moved: Sequence[float]) -> str:
    """What ours moved by what a plain read gave in the turns of the same test; "-" where none was measured."""
    reads = [rate for x in counted(lines, "memory", model, test) for rate in x["rates"]]
    return f"{statistics.median(moved) / statistics.median(reads):.0%}" if reads and moved else "-"


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--llama", type=Path, help="llama.cpp's llama-bench; llama-batched-bench beside it is used too")
    parser.add_argument("--ik", type=Path, help="ik_llama.cpp's llama-bench")
    parser.add_argument("--ours", type=Path, default=ROOT, help="a checkout of this project; default: this one")
    parser.add_argument("--ours-flags", default=KV, help=f"flags of `strata bench`, in one word; default: {KV}")
    parser.add_argument("--without-ours", action="store_true")
    parser.add_argument(
        "--test", type=figure_of, action="append", help="decode:N, prompt:N or slots:N; all when left out"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2, help="repetitions of a process")
    parser.add_argument("--seconds", type=float, help="start nothing that would end later than this")
    parser.add_argument("--through", default="", help="a command that starts every process, e.g. in a quiet moment")
    parser.add_argument(
        "--company", type=float, default=DISTURBED, help="the largest share of other processes that counts"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "peers.jsonl")
    return parser.parse_args(words)


def main() -> int:
    options = parsed()
    ours: list[Engine] = [Ours(options.ours, options.ours_flags.split()), Memory(options.ours)]
    engines = [] if options.without_ours else ours
    engines += [Llama(options.llama)] if options.llama else []
    engines += [Ik(options.ik)] if options.ik else []
    lines = read_lines(options.out)
    complete = compare(options, engines, lines)
    sys.stdout.write(table(lines))
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())
