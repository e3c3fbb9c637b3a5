"""`strata bench`: rates on this machine, as they are measured."""

import json
import statistics
from typing import Annotated

import typer

from strata.assemble import Loaded
from strata.checks.facts import facts
from strata.checks.prompts import has_tokenizer, reading
from strata.checks.rates import Bench, Rates
from strata.cli.check import Isa, Json, ModelArgument, Threads, loaded_for
from strata.cli.output import note, say

Contexts = Annotated[list[int] | None, typer.Option("--context", min=1, metavar="N", help="Repeat it for several.")]
Repeat = Annotated[int, typer.Option("--repeat", min=1, help="Runs that count, after one that warms up.")]


def decode(
    context: typer.Context,
    model: ModelArgument = None,
    contexts: Contexts = None,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Tokens per slot and run.")] = 64,
    slots: Annotated[int, typer.Option("--slots", min=1, max=64, help="Sequences that decode together.")] = 1,
    repeat: Repeat = 5,
    threads: Threads = None,
    isa: Isa = None,
    json_: Json = False,
) -> None:
    """Tokens per second of decoding behind --context tokens (default 128): median, least and most of the runs."""
    depths = contexts or [128]
    loaded = loaded_for(context, model, threads, isa, slots, max(depths) + tokens)
    bench = bench_of(loaded, max(depths) + slots, repeat)
    for depth in depths:
        note(f"decode behind {depth} tokens, {slots} slots, {repeat} runs of {tokens} tokens ...")
        show("decode", bench.decode(depth, slots, tokens), loaded, json_)


def prompt(
    context: typer.Context,
    model: ModelArgument = None,
    contexts: Contexts = None,
    repeat: Repeat = 3,
    threads: Threads = None,
    isa: Isa = None,
    json_: Json = False,
) -> None:
    """Tokens per second of reading a prompt of --context tokens (default 512): median, least and most of the runs."""
    lengths = contexts or [512]
    loaded = loaded_for(context, model, threads, isa, 1, max(lengths))
    bench = bench_of(loaded, max(lengths), repeat)
    for length in lengths:
        note(f"prompt of {length} tokens, {repeat} runs ...")
        show("prompt", bench.prompt(length), loaded, json_)


def bench_of(loaded: Loaded, tokens: int, repeat: int) -> Bench:
    """A bench that reads `tokens` tokens of text."""
    ids = reading(loaded.checkpoint, loaded.model.shape.vocabulary, tokens)
    return Bench(loaded.runner, ids, loaded.plan.chunk, repeat)


def show(name: str, rates: Rates, loaded: Loaded, as_json: bool) -> None:
    """One line of words, or of JSON with everything that was measured and set."""
    values = rates.values()
    if as_json:
        settings = {choice.name: choice.value for choice in loaded.plan.choices}
        text = "ledger" if has_tokenizer(loaded.checkpoint) else "drawn ids"
        say(json.dumps({"bench": name, **values, **facts(loaded), "settings": settings, "text": text}) + "\n")
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
    machine = facts(loaded)["machine"]
    assert isinstance(machine, dict)
    parts.append(f"{machine['threads']} threads, {machine['isa']}, {machine['cpu']}")
    say(", ".join(parts) + "\n")
