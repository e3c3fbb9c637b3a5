"""`strata bench decode` and `prompt`: rates on this machine, as they are measured."""

import json
import statistics
from typing import Annotated, NamedTuple

import typer

from strata.assemble import Loaded
from strata.checks.company import DISTURBED, Company
from strata.checks.facts import facts
from strata.checks.profile import Profile, profile
from strata.checks.prompts import drawn_ids, has_tokenizer, reading
from strata.checks.rates import Bench, Rates, share_of_bytes
from strata.cli.arguments import ModelArgument
from strata.cli.check import DeviceName, Isa, Json, KvType, PromptChunk, RamGib, Threads, VramGib, given, loaded_for
from strata.cli.output import note, say

Repeat = Annotated[int, typer.Option("--repeat", min=1, help="Runs that count, after one that warms up.")]
Drawn = Annotated[
    bool, typer.Option("--drawn", help="Read ids drawn at random, as other engines' benchmarks do, and no text.")
]


def decode(
    context: typer.Context,
    model: ModelArgument = None,
    contexts: Annotated[
        list[int] | None,
        typer.Option("--context", min=0, metavar="N", help="0 = from the first token on; repeat it for several."),
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Tokens per slot and run.")] = 64,
    slots: Annotated[
        list[int] | None,
        typer.Option("--slots", min=1, max=64, help="Sequences that decode together; repeat it for several."),
    ] = None,
    repeat: Repeat = 5,
    drawn: Drawn = False,
    profiled: Annotated[
        bool, typer.Option("--profile", help="Say where a step's time goes, and not the rate: timing costs some.")
    ] = False,
    threads: Threads = None,
    isa: Isa = None,
    kv_type: KvType = None,
    prompt_chunk: PromptChunk = None,
    ram_gib: RamGib = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """Tokens per second of decoding behind --context tokens (default 128): median, least and most of the runs.

    With one slot and several, also what share of the rate several reach that their bytes of weights allow.
    """
    depths, counts = contexts or [128], sorted(set(slots or [1]))
    flags = {
        **given(threads, isa, device, vram_gib),
        **{"kv_type": kv_type, "prompt_chunk": prompt_chunk, "ram_gib": ram_gib},
    }
    loaded = loaded_for(context, model, flags, counts[-1], max(depths) + tokens)
    bench = bench_of(loaded, max(1, *depths) + counts[-1], repeat, drawn)
    for depth in depths:
        alone: Rates | None = None
        for count in counts:
            if profiled:
                note(f"profile behind {depth} tokens, {count} slots, {repeat} runs of {tokens} tokens ...")
                show_profile(profile(bench, depth, count, tokens), loaded, json_)
                continue
            note(f"decode behind {depth} tokens, {count} slots, {repeat} runs of {tokens} tokens ...")
            company = Company()
            rates = bench.decode(depth, count, tokens)
            alone = rates if count == 1 else alone
            share = share_of_bytes(alone, rates) if alone and count > 1 else None
            show("decode", rates, Beside(loaded, drawn, company.share(), share), json_)


def prompt(
    context: typer.Context,
    model: ModelArgument = None,
    contexts: Annotated[
        list[int] | None, typer.Option("--context", min=1, metavar="N", help="Repeat it for several.")
    ] = None,
    repeat: Repeat = 3,
    drawn: Drawn = False,
    threads: Threads = None,
    isa: Isa = None,
    kv_type: KvType = None,
    prompt_chunk: PromptChunk = None,
    ram_gib: RamGib = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """Tokens per second of reading a prompt of --context tokens (default 512): median, least and most of the runs."""
    lengths = contexts or [512]
    flags = {
        **given(threads, isa, device, vram_gib),
        **{"kv_type": kv_type, "prompt_chunk": prompt_chunk, "ram_gib": ram_gib},
    }
    loaded = loaded_for(context, model, flags, 1, max(lengths))
    bench = bench_of(loaded, max(lengths), repeat, drawn)
    for length in lengths:
        note(f"prompt of {length} tokens, {repeat} runs ...")
        company = Company()
        rates = bench.prompt(length)
        show("prompt", rates, Beside(loaded, drawn, company.share(), None), json_)


def bench_of(loaded: Loaded, tokens: int, repeat: int, drawn: bool) -> Bench:
    """A bench that reads `tokens` tokens of text, or of drawn ids."""
    size = loaded.model.shape.vocabulary
    ids = drawn_ids(tokens, size, 1) if drawn else reading(loaded.checkpoint, size, tokens)
    return Bench(loaded.runner, ids, loaded.plan.chunk, repeat, drawn)


class Beside(NamedTuple):
    """What a result says beside its rates."""

    loaded: Loaded
    drawn: bool
    company: float | None
    """The share of the processors that other processes took meanwhile."""
    share_of_bytes: float | None


def show(name: str, rates: Rates, beside: Beside, as_json: bool) -> None:
    """One line of words, or of JSON with everything that was measured and set."""
    loaded = beside.loaded
    steps_per_second = statistics.median(rates.runs) / rates.rows_per_step
    moved = None if rates.bytes_per_step is None else (rates.bytes_per_step + rates.state_bytes_per_step)
    gb_per_second = None if moved is None else moved * steps_per_second / 1e9
    if as_json:
        settings = {choice.name: choice.value for choice in loaded.plan.choices}
        text = "drawn ids" if beside.drawn or not has_tokenizer(loaded.checkpoint) else "ledger"
        value = {"bench": name, **rates.values(), "gb_per_second": gb_per_second}
        value |= {"share_of_bytes": beside.share_of_bytes, "company": beside.company}
        say(json.dumps({**value, **facts(loaded), "settings": settings, "text": text}) + "\n")
        return
    runs = rates.runs
    parts = [
        f"{name} {rates.context} tokens of context, {rates.slots} slots: {statistics.median(runs):.2f} tok/s"
        f" (from {min(runs):.2f} to {max(runs):.2f} in {len(runs)} runs)",
        f"{rates.rows_per_step:.1f} rows per step",
    ]
    if rates.distinct_experts_per_step is not None and rates.bytes_per_step is not None:
        parts.append(f"{rates.distinct_experts_per_step:.1f} distinct experts per step")
        parts.append(f"{rates.bytes_per_step / 1e6:.1f} MB of weights per step")
        parts.append(f"{gb_per_second:.1f} GB/s with the state")
    if beside.share_of_bytes is not None:
        parts.append(f"{beside.share_of_bytes:.0%} of what the bytes allow")
    machine = facts(loaded)["machine"]
    assert isinstance(machine, dict)
    parts.append(f"{machine['threads']} threads, {machine['isa']}, {machine['cpu']}")
    if beside.company is not None and beside.company > DISTURBED:
        parts.append(f"disturbed: other processes took {beside.company:.0%} of the processors")
    say(", ".join(parts) + "\n")


def show_profile(found: Profile, loaded: Loaded, as_json: bool) -> None:
    """A line for each part of a step, largest first, or one of JSON with everything that was measured and set."""
    if as_json:
        settings = {choice.name: choice.value for choice in loaded.plan.choices}
        say(json.dumps({"bench": "profile", **found.values(), **facts(loaded), "settings": settings}) + "\n")
        return
    say(
        f"a step of {found.slots} slots behind {found.context} tokens: {found.total:.3f} ms,"
        f" {found.operations} operations (mean of {found.steps})\n"
    )
    for title, times in (("", {**found.parts, **found.host()}), ("by operation", found.by_operation)):
        say(f"{title}:\n" if title and times else "")
        for name, ms in sorted(times.items(), key=lambda item: -item[1]):
            say(f"  {name:<20}{ms:>9.3f} ms {ms / found.total:>6.1%}\n")
