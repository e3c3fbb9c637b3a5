"""`strata bench join` and `bench turns`: what requests cost each other, and what a held history saves."""

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from strata.assemble import Loaded
from strata.checkpoint.fingerprint import fingerprint
from strata.checks.company import DISTURBED, Company
from strata.checks.facts import facts
from strata.checks.joining import Bed, Joined, Overtaken, join, overtake
from strata.checks.prompts import reading
from strata.checks.turning import ANSWER, Turn, Turns
from strata.cli.arguments import ModelArgument
from strata.cli.check import DeviceName, Isa, Json, KvType, Threads, VramGib, loaded_for
from strata.cli.check_crowd import flags_of
from strata.cli.flags import Given, flag
from strata.cli.output import note, say
from strata.engine.engine import EngineSettings
from strata.engine.scheduler import GRAIN
from strata.engine.settings import Settings
from strata.plan.wishes import Wishes
from strata.runtime.keeping import OnDisk

SHORT = 24
"""Tokens of a one-line question."""

MaxGap = Annotated[str | None, flag(Wishes, "max_gap_ms")]


def join_(
    context: typer.Context,
    model: ModelArgument = None,
    streams: Annotated[int, typer.Option("--streams", min=1, max=32, help="Streams that decode.")] = 4,
    prompts: Annotated[
        list[int] | None, typer.Option("--prompt", min=16, metavar="N", help="Tokens of a prompt; repeat it for more.")
    ] = None,
    behind: Annotated[
        int, typer.Option("--behind", min=64, help="Tokens of the prompt that a one-line question comes behind.")
    ] = 7500,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Runs of each part.")] = 3,
    max_gap_ms: MaxGap = None,
    threads: Threads = None,
    isa: Isa = None,
    kv_type: KvType = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """Cold prompts join streams (default 4,096 and 2,048 tokens), and a one-line question comes behind a long one."""
    lengths = prompts or [4096, 2048]
    loaded = loaded_for(
        context,
        model,
        flags_of(threads, isa, kv_type, device, vram_gib),
        streams + len(lengths),
        room_of(lengths, behind),
    )
    gap_s = Given(context.obj, {"max_gap_ms": max_gap_ms}, {}).resolve(Wishes).max_gap_ms / 1000
    bed = Bed(loaded, EngineSettings(scheduler=Settings(chunk_tokens=loaded.plan.chunk, max_gap_s=gap_s)))
    size = loaded.model.shape.vocabulary
    ids = reading(loaded.checkpoint, size, sum(lengths) + max(behind, 200) + SHORT)
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    cold = [ids[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    rest = ids[sum(lengths) :]
    for turn in range(repeat):
        note(
            f"{streams} streams, prompts of {', '.join(map(str, lengths))} tokens join, run {turn + 1} of {repeat} ..."
        )
        company = Company()
        show_joined(join(bed, streams, cold, rest[:100], gap_s), loaded, company.share(), json_)
    for slots in [2, 1] * repeat:
        note(f"a question behind {behind} tokens, {slots} slots ...")
        company = Company()
        show_overtaken(overtake(bed, rest[:behind], rest[-SHORT:], slots), loaded, company.share(), json_)


def room_of(lengths: list[int], behind: int) -> int:
    """Tokens that a slot has to hold; streams say one in every step, and a step reads `GRAIN` tokens at least."""
    return max(max(lengths) + 64, behind + 64, 100 + sum(lengths) // GRAIN + 128)


def turns(
    context: typer.Context,
    model: ModelArgument = None,
    history: Annotated[int, typer.Option("--history", min=64, help="Tokens of the first turn's prompt.")] = 4100,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Runs that count.")] = 3,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Folder of the files; default: one that goes.")
    ] = None,
    threads: Threads = None,
    isa: Isa = None,
    kv_type: KvType = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """Next turns on a history that is held in memory or on disk, edited, or without its thinking, beside cold ones."""
    loaded = loaded_for(context, model, flags_of(threads, isa, kv_type, device, vram_gib), 2, history + 5 * ANSWER)
    ids = reading(loaded.checkpoint, loaded.model.shape.vocabulary, history + 3 * ANSWER)
    settings = EngineSettings(scheduler=Settings(chunk_tokens=loaded.plan.chunk))
    for turn in range(repeat):
        note(f"next turns on {history} tokens, run {turn + 1} of {repeat} ...")
        with tempfile.TemporaryDirectory(dir=state_dir, prefix="strata-bench-") as folder:
            disk = OnDisk(Path(folder), 1 << 34, fingerprint(loaded.checkpoint))
            company = Company()
            for found in Turns(loaded, settings, ids, disk).turns():
                show_turn(found, loaded, company.share(), json_)


def result(
    bench: str, found: Joined | Overtaken | Turn, more: Mapping[str, object], about: tuple[Loaded, float | None]
) -> str:
    """One line of JSON with everything that was measured and set."""
    loaded, company = about
    settings = {choice.name: choice.value for choice in loaded.plan.choices}
    value = {"bench": bench, **dataclasses.asdict(found), **more, "company": company}
    return json.dumps({**value, **facts(loaded), "settings": settings}) + "\n"


def disturbed(company: float | None) -> str:
    """Words about others' work beside the measurement; "" when there was none."""
    if company is None or company <= DISTURBED:
        return ""
    return f" (disturbed: other processes took {company:.0%} of the processors)"


def show_joined(found: Joined, loaded: Loaded, company: float | None, as_json: bool) -> None:
    """Gaps, times to first token, rows per step."""
    if as_json:
        say(result("join", found, {"failure": found.failure}, (loaded, company)))
        return
    reads = ", ".join(
        f"{tokens} tokens {together:.2f} s (alone {alone:.2f})"
        for tokens, together, alone in zip(found.prompts, found.together_s, found.alone_s, strict=True)
    )
    rows = ", ".join(f"{n}: {steps}" for n, steps in sorted(found.rows_per_step.items()))
    say(
        f"longest gap {found.longest_gap_s * 1e3:.0f} ms of at most {found.bound_s * 1e3:.0f}, median"
        f" {found.gaps_s['p50'] * 1e3:.0f}, 95% {found.gaps_s['p95'] * 1e3:.0f}; a decode step alone"
        f" {found.decode_step_s * 1e3:.1f}; tokens of a stream meanwhile {found.least_tokens} to {found.most_tokens};"
        f" {found.failure or 'as it should be'}{disturbed(company)}\n"
        f"  first tokens: {reads}\n  steps by rows: {rows}\n"
    )


def show_overtaken(found: Overtaken, loaded: Loaded, company: float | None, as_json: bool) -> None:
    """One line."""
    if as_json:
        say(result("overtake", found, {"share": found.share}, (loaded, company)))
        return
    say(
        f"a question of {found.short} tokens behind {found.long}, {found.slots} slots: first token after"
        f" {found.first_s:.3f} s, {found.share:.1%} of the long prompt's {found.read_s:.2f} s (which took"
        f" {found.long_first_s:.2f} s){disturbed(company)}\n"
    )


def show_turn(found: Turn, loaded: Loaded, company: float | None, as_json: bool) -> None:
    """One line."""
    if as_json:
        say(result("turns", found, {"share": found.share, "kept": found.kept}, (loaded, company)))
        return
    say(
        f"{found.name}: {found.reused} of {found.common} common tokens reused ({found.kept:.1%}) from"
        f" {found.tier or 'nowhere'}, first token after {found.first_s:.3f} s, {found.share:.1%} of the cold"
        f" {found.cold_s:.3f} s{disturbed(company)}\n"
    )
