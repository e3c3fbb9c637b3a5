"""`strata check batch`: a crowd of requests on one engine, each against itself alone."""

import dataclasses
import json
from typing import Annotated

import typer

from strata.assemble import Loaded
from strata.checks.batch import LONG, ExpertReads, Outcome, RoutingTap, company_harm, crowd_of, expert_reads, together
from strata.checks.crowd import Part
from strata.checks.engines import alone, next_turns
from strata.checks.facts import facts
from strata.checks.prompts import check_prompts, reading
from strata.checks.rehearsed import Rehearsed
from strata.checks.runners import forgetful, keeping, spoil
from strata.checks.watched import Watched, harmless
from strata.cli.arguments import ModelArgument
from strata.cli.check import DeviceName, Isa, Json, KvType, Threads, VramGib, loaded_for
from strata.cli.check_crowd import conclude, flags_of
from strata.cli.output import note, say
from strata.cli.progress import progress, telling
from strata.kernels.cpu_ops import CpuOps
from strata.runtime.drafts import Drafting

ANSWERS = 256
"""Room behind the longest prompt for answers and second turns."""
RIGHT = 0.6
"""Chance of a draft to be right, in the variant with drafts."""


def batch(
    context: typer.Context,
    model: ModelArgument = None,
    count: Annotated[int, typer.Option("--n", min=4, max=64, help="Requests at once.")] = 16,
    long: Annotated[int, typer.Option("--long", min=16, help="Tokens of the prompt read beside the others.")] = LONG,
    broken: Annotated[
        bool, typer.Option("--break", help="Spoil a stream's state in a step: every variant must then fail.")
    ] = False,
    threads: Threads = None,
    isa: Isa = None,
    kv_type: KvType = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """Streams that share their steps say what they say alone; exit 1 when one does not, or when nothing is shared."""
    loaded = loaded_for(context, model, flags_of(threads, isa, kv_type, device, vram_gib), count, long + ANSWERS)
    size = loaded.model.shape.vocabulary
    prompts = check_prompts(loaded.checkpoint, size, 384)[:3]
    parts = crowd_of(prompts, reading(loaded.checkpoint, size, long), count)
    note(f"{count} requests alone, one after the other, then together ...")
    with progress("alone") as said:
        solo = alone(loaded, parts, telling(said, "requests"))
        again = next_turns(parts, solo, [prompt[:20] for prompt in reversed(prompts)])
        solo_again = alone(loaded, again, telling(said, "their second turns"))
    said_alone = {**solo, **solo_again}
    texts = [(*part.request.tokens, *said_alone[part.request.id].tokens) for part in (*parts, *again)]
    failures: dict[str, str] = {}
    for name, keeps, parked, drafts in VARIANTS:
        drafting = Drafting(depth=drafts, drafters={"rehearsed": Rehearsed(texts, (RIGHT,), size)}) if drafts else None
        runner = keeping(loaded, count, drafting=drafting) if keeps else forgetful(loaded, count)
        watched = Watched(runner, company_harm if broken else harmless, spoil)
        with progress(name) as said:
            turns = [(parts, solo), (again, solo_again)]
            outcome = together(name, watched, turns, parked, telling(said, "answers"))
        failures[name] = outcome.failure
        say(outcome_json(outcome, broken, loaded) if json_ else outcome_line(outcome))
    if isinstance(loaded.runner.ops, CpuOps) and not broken:
        note("how often experts are read ...")
        reads = reads_of(loaded, loaded.runner.ops, count, parts)
        failures["experts read once per step"] = reads.failure
        say(reads_json(reads, loaded) if json_ else reads_line(reads))
    conclude("batch", failures, broken)


VARIANTS = (
    ("together, nothing kept", False, False, 0),
    ("together, conversations kept", True, False, 0),
    ("together, conversations parked between turns", True, True, 0),
    ("together, drafts in every slot", True, True, 3),
)
"""(name, whether conversations are kept, whether they are parked, drafts of every slot and step)"""


def reads_of(loaded: Loaded, ops: CpuOps, count: int, parts: list[Part]) -> ExpertReads:
    """The crowd once more, with the routing listened to."""
    tap = RoutingTap()
    return expert_reads(forgetful(loaded, count, tap), tap, lambda: ops.native.distinct_experts, parts)


def outcome_line(outcome: Outcome) -> str:
    """One line: what was compared, how far steps were shared, and that all is equal or what is wrong."""
    rows = ", ".join(f"{n}: {steps}" for n, steps in sorted(outcome.streams_per_step.items()))
    return (
        f"{outcome.name}: {outcome.streams} streams, {outcome.tokens} tokens compared, {outcome.reused} prompt tokens"
        f" reused, {outcome.accepted} of {outcome.drafted} drafts accepted, {outcome.failure or 'equal'}\n"
        f"  {outcome.mean:.1f} streams per step on average; steps by streams: {rows}\n"
    )


def outcome_json(outcome: Outcome, broken: bool, loaded: Loaded) -> str:
    """The same with the facts about the run."""
    value = {
        "check": "batch",
        **dataclasses.asdict(outcome),
        "mean_streams": outcome.mean,
        "equal": not outcome.failure,
        "broken_on_purpose": broken,
    }
    return json.dumps(value | facts(loaded)) + "\n"


def reads_line(reads: ExpertReads) -> str:
    """One line."""
    return (
        f"experts read once per step: {reads.uses} uses of {reads.distinct} distinct experts,"
        f" {reads.failure or f'{reads.read} were read'}\n"
    )


def reads_json(reads: ExpertReads, loaded: Loaded) -> str:
    """The same with the facts about the run."""
    value = {"check": "batch", "name": "experts read once per step", **dataclasses.asdict(reads)}
    return json.dumps(value | {"equal": not reads.failure} | facts(loaded)) + "\n"
