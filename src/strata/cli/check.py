"""`strata check`: what the engine promises, tried on a model."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from strata.assemble import Loaded, load
from strata.chat.tokenizer import load_tokenizer
from strata.checks.drafted import NAME as DRAFTED
from strata.checks.drafted import Drafted
from strata.checks.equalities import Equalities, Plan, Verdict
from strata.checks.facts import facts
from strata.checks.perplexity import Perplexity, encode_text, perplexities
from strata.checks.prompts import check_prompts
from strata.checks.tiers import NAME as TIERS
from strata.checks.tiers import Tiers
from strata.cli.arguments import ModelArgument
from strata.cli.flags import Given, flag
from strata.cli.output import make_log, note, say
from strata.core.errors import UsageError
from strata.experts.placing import side_of
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.plan.pool import page_count
from strata.plan.wishes import Wishes

LONGEST, STEPS = 384, 24
"""Tokens of the longest prompt (more than a sparse attention's budget of 256), and of every answer."""

SLOTS = 4

Threads = Annotated[str | None, flag(Wishes, "threads")]
Isa = Annotated[str | None, flag(Wishes, "isa")]
KvType = Annotated[str | None, flag(Wishes, "kv_type")]
PromptChunk = Annotated[str | None, flag(Wishes, "prompt_chunk")]
DeviceName = Annotated[str | None, flag(Wishes, "device")]
VramGib = Annotated[str | None, flag(Wishes, "vram_gib")]
RamGib = Annotated[str | None, flag(Wishes, "ram_gib")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def loaded_for(
    context: typer.Context, model: str | None, flags: Mapping[str, str | None], slots: int, tokens: int
) -> Loaded:
    """The model with room for `slots` sequences of `tokens`; UsageError when they do not fit.

    `flags` are the engine's, by the names of their settings.
    """
    wishes = Given(context.obj, dict(flags), {}).resolve(Wishes)
    wishes = dataclasses.replace(wishes, parallel=slots, ctx_size=max(tokens, 16))
    loaded = load(model, wishes, make_log(dataclasses.replace(wishes, log_level="warning")))
    if loaded.plan.slots < slots:
        raise UsageError(f"{slots} slots of {tokens} tokens are needed: {loaded.plan.slots_reason}")
    if loaded.plan.pages < slots * page_count(tokens):
        reason = next(choice.reason for choice in loaded.plan.choices if choice.name == "pages")
        raise UsageError(f"pages for {slots} slots of {tokens} tokens at once are needed: {reason}")
    return loaded


def equalities(
    context: typer.Context,
    model: ModelArgument = None,
    broken: Annotated[
        bool, typer.Option("--break", help="Spoil a stored value first: every equality must then fail.")
    ] = False,
    tiers: Annotated[
        bool,
        typer.Option(
            "--tiers", help="Also experts in VRAM, over PCIe and on the CPU; without a GPU on an emulated one (slow)."
        ),
    ] = False,
    threads: Threads = None,
    isa: Isa = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """Slots, chunks, drafts and snapshots change no bit of the logits; exit 1 when one of them does."""
    loaded = loaded_for(context, model, given(threads, isa, device, vram_gib), SLOTS, LONGEST + STEPS + 16)
    prompts = check_prompts(loaded.checkpoint, loaded.model.shape.vocabulary, LONGEST)
    lengths = ", ".join(str(len(p)) for p in prompts)
    note(f"reading prompts of {lengths} tokens one by one, {STEPS} tokens of answer each ...")
    run = Equalities(loaded.runner, Plan(prompts, STEPS, tamper=broken))
    verdicts = []
    named = dict(run.named())
    named[DRAFTED] = Drafted(loaded, prompts, STEPS, broken).compare
    if tiers:
        named[TIERS] = tiered(loaded, run).resident
    for name, compare in named.items():
        note(f"{name} ...")
        verdicts.append(compare())
        say(verdict_json(verdicts[-1], broken, loaded) if json_ else verdict_line(verdicts[-1]))
    red = [v.name for v in verdicts if not v.equal]
    if not broken and red:
        note(f"check equalities: {len(red)} of {len(verdicts)} failed: {', '.join(red)}")
    elif broken and len(red) == len(verdicts):
        note(f"check equalities: every one failed, which was the purpose of --break: {', '.join(red)}")
    elif broken:
        blind = [v.name for v in verdicts if v.equal]
        note(f"check equalities: --break was not noticed, so these are blind: {', '.join(blind)}")
    if broken or red:
        raise typer.Exit(1)


def given(threads: str | None, isa: str | None, device: str | None, vram_gib: str | None) -> Mapping[str, str | None]:
    """The engine's flags by the names of their settings."""
    return {"threads": threads, "isa": isa, "device": device, "vram_gib": vram_gib}


def tiered(loaded: Loaded, run: Equalities) -> Tiers:
    """The comparison of placements on the model's GPU, or on an emulated one beside the CPU's operations.

    UsageError where there is nothing to place.
    """
    ops, host = loaded.runner.ops, loaded.runner.host_ops
    if not loaded.model.store.banks or not isinstance(host, CpuOps):
        raise UsageError("--tiers: this needs a model with experts, and no --isa naive")
    device = ops.device if isinstance(ops, GpuOps) else HostDevice()
    return Tiers(run, device, host.native, side_of(device.torch_device))


def verdict_line(verdict: Verdict) -> str:
    """One line: name, rows, and that they are equal or where they are not."""
    return f"{verdict.name}: {verdict.rows} rows compared, {verdict.difference or 'equal'}\n"


def verdict_json(verdict: Verdict, broken: bool, loaded: Loaded) -> str:
    """The same with the facts about the run."""
    value = {
        "check": "equalities",
        "name": verdict.name,
        "rows": verdict.rows,
        "equal": verdict.equal,
        "difference": verdict.difference,
        "broken_on_purpose": broken,
    }
    return json.dumps(value | facts(loaded)) + "\n"


def perplexity(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A .gguf file or folder, or org/name[:QUANT].")],
    text: Annotated[Path, typer.Option("--text", metavar="FILE", help="The text, UTF-8.")],
    ctx: Annotated[int, typer.Option("--ctx", min=2, help="Tokens per chunk.")] = 512,
    chunks: Annotated[int | None, typer.Option("--chunks", min=1, help="Chunks at most; all when left out.")] = None,
    threads: Threads = None,
    isa: Isa = None,
    device: DeviceName = None,
    vram_gib: VramGib = None,
    json_: Json = False,
) -> None:
    """Perplexity of a text by llama-perplexity's definition: the second half of every chunk is scored."""
    try:
        words = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--text {text}: cannot be read as UTF-8: {error}") from error
    loaded = loaded_for(context, model, given(threads, isa, device, vram_gib), 1, ctx)
    tokenizer = load_tokenizer(loaded.checkpoint)
    tokens = encode_text(tokenizer, words)
    last: Perplexity | None = None
    for last in perplexities(loaded.runner, tokens, ctx, chunks, tokenizer.bos):
        note(f"[{last.chunks}] {last.value:.4f}")
    assert last is not None
    if json_:
        value = {"check": "perplexity", "text": str(text), "ctx": ctx, **dataclasses.asdict(last), **facts(loaded)}
        say(json.dumps(value) + "\n")
    else:
        say(
            f"perplexity {last.value:.4f} +/- {last.uncertainty:.5f} over {last.scored} tokens"
            f" of {last.chunks} chunks of {ctx}\n"
        )
