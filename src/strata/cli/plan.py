"""`strata plan` and `strata calibrate`: what goes where and why, how fast it will be, and what that is known from."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from strata.assemble import make_ops
from strata.checks.facts import origin
from strata.checks.measured import Measured
from strata.checks.outlook import Outlook, outlook
from strata.checks.prospect import Prospect, prospect, why
from strata.cli.arguments import ModelArgument
from strata.cli.flags import Given, with_settings
from strata.cli.output import note
from strata.cli.progress import progress
from strata.cli.tables import show_table
from strata.core.errors import UsageError
from strata.hub.headers import headers_of
from strata.hub.hub import Hub
from strata.kernels.cpu_ops import CpuOps
from strata.plan.wishes import Wishes
from strata.quant.formats import FORMATS

Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]


@with_settings(Wishes)
def plan(
    given: Given,
    model: ModelArgument = None,
    json_: Json = False,
) -> None:
    """Show what goes where and why, the speed to expect, and what would help. Nothing is downloaded for it."""
    wishes = given.resolve(Wishes)
    with headers_of(model, Hub()) as path, progress("measuring this machine") as said:
        found = prospect(path, wishes, said)
    seen = outlook(found)
    if json_:
        sys.stdout.write(json.dumps(as_json(found, seen)) + "\n")
        return
    show_table(
        f"{found.name} ({found.architecture}, {found.layers} layers)", ("part", "size", "where"), seen.places, (1,)
    )
    show_table("Settings", ("setting", "value", "because"), why(found.plan.choices))
    show_table("To expect", ("what", "about", "from"), seen.speeds, (1,))
    for sentence in seen.advice:
        note(f"hint: {sentence}")


def as_json(found: Prospect, seen: Outlook) -> dict[str, object]:
    """Everything, as plain values."""
    return {
        "model": found.name,
        "architecture": found.architecture,
        "settings": {c.name: {"value": c.value, "reason": c.reason} for c in found.plan.choices},
        "bytes": asdict(found.sizes),
        "places": [dict(zip(("part", "size", "where"), row, strict=True)) for row in seen.places],
        "expect": [dict(zip(("what", "about", "from"), row, strict=True)) for row in seen.speeds],
        "tokens_per_second": seen.rates,
        "advice": list(seen.advice),
        **origin(found.machine.threads, found.machine.isa),
    }


def calibrate(
    context: typer.Context,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="Formats to measure; repeatable. [default: the usual ones]")
    ] = None,
    json_: Json = False,
) -> None:
    """Measure this machine's rates anew and keep them for `strata plan`: memory, and products by format."""
    names = formats or ["Q8_0", "Q4_K", "Q6_K", "IQ4_NL", "IQ3_S", "BF16", "F32"]
    for name in names:
        if name not in FORMATS:
            raise UsageError(f"--format {name}: unknown", hint=f"one of {', '.join(FORMATS)}")
    wishes = Given(context.obj, {}, {}).resolve(Wishes)
    ops, machine = make_ops(wishes)
    if not isinstance(ops, CpuOps):
        raise UsageError("the naive operations are not measured", hint="unset STRATA_ISA")
    known = Measured(Path(wishes.cache_dir).expanduser(), machine.threads, machine.isa)
    before = dict(known.here)
    with progress("measuring") as said:
        rates = known.need(names, ops, said, again=True)
    if json_:
        kept = {"file": str(known.path), "rates": dict(known.here)}
        sys.stdout.write(json.dumps({**kept, **origin(machine.threads, machine.isa)}) + "\n")
        return
    rows = [
        ("memory, a plain read", f"{rates.read_gbs:.1f} GB/s", "", changed(before, known.here, "read")),
        ("to start a product", f"{rates.call_us:.1f} us", "", changed(before, known.here, "call")),
    ]
    for name in sorted(names):
        was = changed(before, known.here, f"{name}, 1 row")
        rows.append((name, f"{rates.product_gbs[name]:.1f} GB/s", f"{rates.product_gmacs[name]:.0f} GMAC/s", was))
    show_table(f"{machine.threads} threads, {machine.isa}", ("what", "one row", "many rows", "before"), rows, (1, 2, 3))
    note(f"kept in {known.path}")
    if known.disturbed:
        note("hint: other processes were busy meanwhile; measure again on a quiet machine")


def changed(before: Mapping[str, float], now: Mapping[str, float], key: str) -> str:
    """What was known before, and how far it is from now."""
    if key not in before:
        return "-"
    return f"{before[key]:.1f} ({now[key] / before[key] - 1:+.0%})"
