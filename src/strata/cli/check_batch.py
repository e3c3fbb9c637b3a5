"""`strata check batch`: a crowd of requests on one engine, each against itself alone."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated

import typer

from strata.assemble import Loaded
from strata.checks.batch import LONG, Engines, ExpertReads, Outcome, RoutingTap, crowd_of, expert_reads, second_turns
from strata.checks.crowd import Part
from strata.checks.facts import facts
from strata.checks.prompts import check_prompts, reading
from strata.cli.check import Isa, Json, KvType, ModelArgument, Threads, loaded_for
from strata.cli.output import note, say
from strata.core.held import Held
from strata.core.limits import Limits
from strata.engine.runner import Runner
from strata.kernels.cpu_ops import CpuOps
from strata.layers.batch import Tap
from strata.runtime.runner import DeviceRunner, Seat
from strata.sampling.history import TokenCounts
from strata.sampling.params import SamplingParams

ANSWERS = 256
"""Room behind the longest prompt for answers and second turns."""


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
    json_: Json = False,
) -> None:
    """Streams that share their steps say what they say alone; exit 1 when one does not, or when nothing is shared."""
    flags = {"threads": threads, "isa": isa, "kv_type": kv_type}
    loaded = loaded_for(context, model, flags, count, long + ANSWERS)
    size = loaded.model.shape.vocabulary
    prompts = check_prompts(loaded.checkpoint, size, 384)[:3]
    engines = Engines(lambda slots, keeps: runner_of(loaded, slots, keeps), count, spoil_runner)
    parts = crowd_of(prompts, reading(loaded.checkpoint, size, long), count)
    note(f"{count} requests alone, one after the other ...")
    solo = engines.alone(parts)
    again = second_turns(parts, solo, prompts)
    note("their second turns alone ...")
    solo_again = engines.alone(again)
    failures = []
    for name, keeps, parked in VARIANTS:
        note(f"{name} ...")
        turns = [(parts, solo), (again, solo_again)]
        outcome = engines.together(name, turns, keeps, parked, broken)
        failures += [name] if outcome.failure else []
        say(outcome_json(outcome, broken, loaded) if json_ else outcome_line(outcome))
    if isinstance(loaded.runner.ops, CpuOps) and not broken:
        note("how often experts are read ...")
        reads = reads_of(loaded, loaded.runner.ops, count, parts)
        failures += ["experts read once per step"] if reads.failure else []
        say(reads_json(reads, loaded) if json_ else reads_line(reads))
    conclude(failures, broken)


VARIANTS = (
    ("together, nothing kept", False, False),
    ("together, conversations kept", True, False),
    ("together, conversations parked between turns", True, True),
)
"""(name, whether conversations are kept, whether they are parked)"""


def conclude(failures: list[str], broken: bool) -> None:
    """Say what failed; exit 1 when anything did, and with --break always."""
    if broken and len(failures) == len(VARIANTS):
        note(f"check batch: every variant failed, which was the purpose of --break: {', '.join(failures)}")
    elif broken:
        blind = [name for name, _, _ in VARIANTS if name not in failures]
        note(f"check batch: --break was not noticed, so these are blind: {', '.join(blind)}")
    elif failures:
        note(f"check batch: failed: {', '.join(failures)}")
    if broken or failures:
        raise typer.Exit(1)


def runner_of(loaded: Loaded, slots: int, keeps: bool, tap: Tap | None = None) -> Runner:
    """A fresh runner over the loaded model."""
    limits = Limits(slots, loaded.plan.context, loaded.plan.step_tokens)
    kind = DeviceRunner if keeps else Forgetful
    return kind(loaded.model, loaded.runner.ops, limits, tap, loaded.runner.states.kv_type)


class Forgetful(DeviceRunner):
    """Keeps nothing of a sequence: every prompt is read whole."""

    def seat(
        self,
        slot: int,
        tokens: Sequence[int],
        params: SamplingParams,
        most: int | None = None,
        marks: Sequence[int] = (),
    ) -> Held:
        """See `Runner.seat`."""
        self.check_ids(tokens, params)
        self.states.clear(slot)
        self.seats[slot] = Seat(params, TokenCounts(tokens))
        return Held(0)

    def release(self, slot: int) -> None:
        """See `Runner.release`."""
        self.seats.pop(slot, None)
        self.states.clear(slot)


def spoil_runner(runner: Runner, slot: int) -> None:
    """Damage what a slot remembers, far enough to change tokens: all signs turn."""
    assert isinstance(runner, DeviceRunner)
    states = runner.states
    for layer in states.layers:
        for plane in (layer.keys, layer.values):
            if plane is not None and states.pages.held[slot]:
                stored = plane.data if plane.scales is None else plane.scales
                stored[states.pages.held[slot][0]] *= -1
        for tensor in (layer.conv, layer.delta, layer.ngram):
            if tensor is not None:
                tensor[slot] *= -1


def reads_of(loaded: Loaded, ops: CpuOps, count: int, parts: list[Part]) -> ExpertReads:
    """The crowd once more, with the routing listened to."""
    tap = RoutingTap()
    return expert_reads(runner_of(loaded, count, False, tap), tap, lambda: ops.native.distinct_experts, parts)


def outcome_line(outcome: Outcome) -> str:
    """One line: what was compared, how far steps were shared, and that all is equal or what is wrong."""
    rows = ", ".join(f"{n}: {steps}" for n, steps in sorted(outcome.streams_per_step.items()))
    return (
        f"{outcome.name}: {outcome.streams} streams, {outcome.tokens} tokens compared, {outcome.reused} prompt tokens"
        f" reused, {outcome.failure or 'equal'}\n"
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
