"""`strata check interleave`, `parking` and `early-close`: crowds on one engine, each request against itself alone."""

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from strata.assemble import Loaded
from strata.checkpoint.fingerprint import fingerprint
from strata.checks.crowd import Tell
from strata.checks.early_close import EarlyClose
from strata.checks.engines import Finding
from strata.checks.facts import facts
from strata.checks.interleave import CHUNK, STREAMS, Interleave
from strata.checks.parking import Parking
from strata.checks.prompts import check_prompts, reading
from strata.cli.arguments import ModelArgument
from strata.cli.check import DeviceName, Isa, Json, KvType, Threads, VramGib, given, loaded_for
from strata.cli.output import note, say
from strata.cli.progress import progress
from strata.core.log import Level, Log
from strata.runtime.keeping import OnDisk

ANSWERS = 256
"""Room behind the longest prompt for answers and second turns."""

Long = Annotated[int, typer.Option("--long", min=4 * CHUNK, help="Tokens of the long prompt.")]
Broken = Annotated[bool, typer.Option("--break", help="Damage a stream's memory: every part must then fail.")]


def interleave(
    context: typer.Context,
    model: ModelArgument = None,
    long: Long = 2000,
    broken: Broken = False,
    threads: Threads = None,
    isa: Isa = None,
    kv_type: KvType = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """A long prompt is read beside streams, short ones overtake it, next turns go on; exit 1 when one part fails."""
    tokens = long + max(ANSWERS, long // CHUNK + 64)
    loaded = loaded_for(context, model, flags_of(threads, isa, kv_type, device, vram_gib), STREAMS + 1, tokens)
    prompts, ids = prompts_of(loaded, long)
    judge("interleave", Interleave(loaded, prompts, ids, broken).findings, loaded, broken, json_)


def early_close(
    context: typer.Context,
    model: ModelArgument = None,
    long: Long = 2000,
    broken: Broken = False,
    threads: Threads = None,
    isa: Isa = None,
    kv_type: KvType = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """Who leaves frees its slot at the next step, others go on unchanged; exit 1 when one part fails."""
    loaded = loaded_for(context, model, flags_of(threads, isa, kv_type, device, vram_gib), STREAMS + 1, long + ANSWERS)
    prompts, ids = prompts_of(loaded, long)
    judge("early-close", EarlyClose(loaded, prompts, ids, broken).findings, loaded, broken, json_)


def parking(
    context: typer.Context,
    model: ModelArgument = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Folder of the files; default: one that goes.")
    ] = None,
    broken: Broken = False,
    threads: Threads = None,
    isa: Isa = None,
    kv_type: KvType = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """Conversations in RAM, and on disk over a restart, come back exactly; exit 1 when one part fails."""
    loaded = loaded_for(context, model, flags_of(threads, isa, kv_type, device, vram_gib), STREAMS + 1, ANSWERS)
    prompts, _ = prompts_of(loaded, ANSWERS // 2)
    with tempfile.TemporaryDirectory(dir=state_dir, prefix="strata-check-") as folder:
        disk = OnDisk(Path(folder), 1 << 32, fingerprint(loaded.checkpoint))
        check = Parking(loaded, prompts, disk, Log(Level.WARNING), broken)
        judge("parking", check.findings, loaded, broken, json_)


def flags_of(
    threads: str | None, isa: str | None, kv_type: str | None, device: str | None, vram_gib: str | None
) -> Mapping[str, str | None]:
    """The engine's flags by the names of their settings."""
    return {**given(threads, isa, device, vram_gib), "kv_type": kv_type}


def prompts_of(loaded: Loaded, long: int) -> tuple[list[list[int]], list[int]]:
    """Three short prompts and a long one."""
    size = loaded.model.shape.vocabulary
    return check_prompts(loaded.checkpoint, size, 64)[:3], reading(loaded.checkpoint, size, long)


def judge(
    check: str, findings: Callable[[Tell], Iterator[Finding]], loaded: Loaded, broken: bool, as_json: bool
) -> None:
    """Say every part's finding as it comes; exit 1 when one failed, and with --break always."""
    found: list[Finding] = []
    with progress(f"check {check}") as told:
        for finding in findings(lambda done, total: told("answers", done, total + 1)):
            found.append(finding)
            say(finding_json(check, finding, broken, loaded) if as_json else finding_line(finding))
    conclude(check, {each.name: each.failure for each in found}, broken)


def conclude(check: str, failures: Mapping[str, str], broken: bool) -> None:
    """Say which parts failed; exit 1 when one did, and with --break always. `failures`: "" where nothing was wrong."""
    red = [name for name, failure in failures.items() if failure]
    blind = [name for name in failures if name not in red]
    if broken and blind:
        note(f"check {check}: --break was not noticed, so these are blind: {', '.join(blind)}")
    elif broken:
        note(f"check {check}: every part failed, which was the purpose of --break: {', '.join(red)}")
    elif red:
        note(f"check {check}: failed: {', '.join(red)}")
    if broken or red:
        raise typer.Exit(1)


def finding_line(finding: Finding) -> str:
    """One line: what was compared, and that all is equal or what is wrong."""
    figures = "".join(f", {name.replace('_', ' ')} {value}" for name, value in finding.figures.items())
    compared = f"{finding.streams} requests, {finding.tokens} tokens compared"
    return f"{finding.name}: {compared}{figures}, {finding.failure or 'as it should be'}\n"


def finding_json(check: str, finding: Finding, broken: bool, loaded: Loaded) -> str:
    """The same with the facts about the run."""
    value = {
        "check": check,
        **dataclasses.asdict(finding),
        "equal": not finding.failure,
        "broken_on_purpose": broken,
    }
    return json.dumps(value | facts(loaded)) + "\n"
