"""`strata bench ab`: two settings or two builds in turn, A B A B ..., and whether they differ."""

import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import strata
from strata.checks.company import DISTURBED
from strata.checks.facts import commit, origin
from strata.checks.versus import LEAST_ROUNDS, Versus
from strata.cli.arguments import ModelArgument
from strata.cli.bench_drafts import NAMES, drafts_ab
from strata.cli.check import Json
from strata.cli.output import note, say
from strata.core.errors import StrataError, UsageError

HERE = Path(strata.__file__).parent.parent.parent

MOST_TRIES = 3
"""A run that others disturbed is repeated this often."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the comparison."""

    name: str
    flags: tuple[str, ...]
    checkout: Path


def ab(
    context: typer.Context,
    model: ModelArgument = None,
    a: Annotated[str, typer.Option("--a", metavar="FLAGS", help='Flags of side A, as "--threads 1".')] = "",
    b: Annotated[str, typer.Option("--b", metavar="FLAGS", help="Flags of side B.")] = "",
    build_a: Annotated[Path | None, typer.Option("--build-a", metavar="DIR", help="A checkout; default: this.")] = None,
    build_b: Annotated[Path | None, typer.Option("--build-b", metavar="DIR", help="A checkout; default: this.")] = None,
    bench: Annotated[str, typer.Option("--bench", metavar="decode|prompt", help="What is measured.")] = "decode",
    both: Annotated[str, typer.Option("--both", metavar="FLAGS", help="Flags of both sides.")] = "",
    rounds: Annotated[int, typer.Option("--rounds", min=LEAST_ROUNDS, help="Runs of each side, in turn.")] = 7,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Repetitions of a run; its median counts.")] = 2,
    draft: Annotated[
        str,
        typer.Option(
            "--draft", metavar="A,B", help="Instead: two settings of --draft, as auto,off, on texts of several kinds."
        ),
    ] = "",
    slots: Annotated[int, typer.Option("--slots", min=1, help="With --draft: requests at once.")] = 1,
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", metavar="NAME", help=f"With --draft: only this text; {', '.join(NAMES)}."),
    ] = None,
    through: Annotated[
        str, typer.Option("--through", metavar="CMD", help="Starts every run, e.g. in a quiet moment.")
    ] = "",
    json_: Json = False,
) -> None:
    """Two settings or two builds in turn (A B A B ...), a process each: medians, their ratio, whether they differ.

    The rule: they differ when the order of the runs is rarer than 1% by chance (exact Mann-Whitney test) and the
    medians are more than 1% apart. Neither given, the same build runs twice and must tie.
    """
    if draft:
        drafts_ab(context.obj, model, draft, slots, rounds, workload or NAMES, shlex.split(both), json_)
        return
    if bench not in ("decode", "prompt"):
        raise UsageError(f"--bench {bench}: unknown", hint="decode or prompt")
    sides = [
        Side("a", tuple(shlex.split(a)), checkout_of("--build-a", build_a)),
        Side("b", tuple(shlex.split(b)), checkout_of("--build-b", build_b)),
    ]
    common = ["bench", bench, *([model] if model else []), *shlex.split(both), "--repeat", str(repeat), "--json"]
    found: dict[str, list[dict[str, object]]] = {"a": [], "b": []}
    for turn in range(rounds):
        for side in sides:
            line = undisturbed(side, [*shlex.split(through)], common, context.obj)
            found[side.name].append(line)
            note(f"{turn + 1} of {rounds}: {side.name.upper()} {rate_of(line):.2f} tok/s")
    rates = {name: tuple(map(rate_of, lines)) for name, lines in found.items()}
    versus = Versus(rates["a"], rates["b"])
    if json_:
        about = {"model": found["a"][0]["model"], "model_bytes": found["a"][0]["model_bytes"], "measured": bench}
        parts = {side.name: described(side, found[side.name][-1]) for side in sides}
        settings = {"rounds": rounds, "repeat": repeat, "both": both, **parts}
        say(json.dumps({"bench": "ab", **versus.values(), **about, **origin(None, None), "settings": settings}) + "\n")
        return
    for side in sides:
        say(in_words(side, rates[side.name]))
    say(versus.words() + "\n")


def in_words(side: Side, rates: Sequence[float]) -> str:
    """A line of a side's rates."""
    what = " ".join([str(side.checkout), *side.flags])
    middle, least, most = statistics.median(rates), min(rates), max(rates)
    return f"{side.name.upper()} {middle:.2f} tok/s (from {least:.2f} to {most:.2f}): {what}\n"


def checkout_of(flag: str, folder: Path | None) -> Path:
    """A checkout that has the package; UsageError when it has not."""
    checkout = (folder or HERE).resolve()
    if not (checkout / "src" / "strata" / "__init__.py").is_file():
        raise UsageError(f"{flag} {checkout}: no checkout (src/strata is missing)")
    return checkout


def undisturbed(
    side: Side, through: Sequence[str], common: Sequence[str], environ: Mapping[str, str]
) -> dict[str, object]:
    """One run, repeated while other processes disturb it; the last one counts whatever happens."""
    for _ in range(MOST_TRIES):
        line = run(side, through, common, environ)
        company = line.get("company")
        if not isinstance(company, float) or company <= DISTURBED:
            break
        note(f"{side.name.upper()} was disturbed: other processes took {company:.0%} of the processors")
    return line


def run(side: Side, through: Sequence[str], common: Sequence[str], environ: Mapping[str, str]) -> dict[str, object]:
    """One child process, started by the command `through`: the JSON line it printed. StrataError when it failed."""
    command = [*through, sys.executable, "-m", "strata", *common, *side.flags]
    environment = {**environ, "PYTHONPATH": str(side.checkout / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 1:
        raise StrataError(
            f"side {side.name.upper()} ended with exit code {done.returncode} and {len(lines)} results:"
            f" {done.stderr.strip()[-500:]}",
            hint=f"try: {shlex.join(command)}",
        )
    line: dict[str, object] = json.loads(lines[0])
    return line


def rate_of(line: Mapping[str, object]) -> float:
    """The median of one run."""
    rates = line["tokens_per_second"]
    assert isinstance(rates, dict)
    return float(rates["median"])


def described(side: Side, line: Mapping[str, object]) -> dict[str, object]:
    """What a side was."""
    build = commit(side.checkout / "src" / "strata")
    return {"flags": list(side.flags), "commit": build, "machine": line["machine"], "settings": line["settings"]}
