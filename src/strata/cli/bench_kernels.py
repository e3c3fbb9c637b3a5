"""`strata bench kernels`: single kernels beside the memory's own rate."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, cast, get_args

import typer

from strata.assemble import make_ops, open_device
from strata.checks.company import DISTURBED
from strata.checks.facts import origin
from strata.checks.kernel_rates import KERNELS, Choice, KernelRate, kernel_rates
from strata.cli.check import DeviceName, Isa, Json, Threads
from strata.cli.flags import Given
from strata.cli.output import say
from strata.core.errors import UsageError
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.native import FORMAT_CODES
from strata.kernels.views import KvType
from strata.plan.wishes import Wishes

GPU_MEGABYTES = 512
"""Ten times the caches of the largest cards."""
KV_TYPES: tuple[str, ...] = get_args(KvType)


def kernels(
    context: typer.Context,
    only: Annotated[list[str] | None, typer.Option("--only", help=f"Of {', '.join(KERNELS)}; repeatable.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="Of the products; repeat it for several.")
    ] = None,
    rows: Annotated[list[int] | None, typer.Option("--rows", min=1, help="Rows of a call; repeatable.")] = None,
    contexts: Annotated[list[int] | None, typer.Option("--context", min=1, help="Of attention; repeatable.")] = None,
    kv_types: Annotated[
        list[str] | None, typer.Option("--kv-type", help=f"Of attention, of {', '.join(KV_TYPES)}; repeatable.")
    ] = None,
    cols: Annotated[int, typer.Option("--cols", min=256, help="Columns of the products' matrices.")] = 2048,
    megabytes: Annotated[
        int | None,
        typer.Option("--mb", min=1, help="Operands per case; above the caches' size (default 128, 512 on a GPU)."),
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Samples that count.")] = 7,
    threads: Threads = None,
    isa: Isa = None,
    device: DeviceName = None,
    json_: Json = False,
) -> None:
    """GB/s of operands from memory, their share of what memory gives here, and GMAC/s, per kernel, format and rows."""
    check_names(
        {"--only": (only, KERNELS), "--format": (formats, tuple(FORMAT_CODES)), "--kv-type": (kv_types, KV_TYPES)}
    )
    if cols % 256:
        raise UsageError(f"--cols {cols}: rows of every format need a multiple of 256 values")
    wishes = Given(context.obj, {"threads": threads, "isa": isa, "device": device}, {}).resolve(Wishes)
    cpu_ops, machine = make_ops(wishes)
    if not isinstance(cpu_ops, CpuOps):
        raise UsageError("--isa naive: the naive operations are not measured", hint="choose one of C++")
    gpu, base = open_device(wishes, cpu_ops), Choice()
    ops = cpu_ops if gpu is None else gpu.ops
    megabytes = megabytes or (base.megabytes if gpu is None else GPU_MEGABYTES)
    choice = Choice(
        only or base.kernels,
        formats or base.formats,
        rows or base.rows,
        contexts or base.contexts,
        cast(list[KvType], kv_types) or base.kv_types,
        cols,
        megabytes,
        repeat,
    )
    settings = {"cols": cols, "mb": megabytes, "repeat": repeat}
    if not json_:
        say(f"{'kernel':10} {'on':32} {'rows':>4} {'ms':>9} {'GB/s':>7} {'of read':>7} {'GMAC/s':>8}\n")
    for rate, read in kernel_rates(ops, choice):
        if json_:
            line = {
                "bench": "kernels",
                **rate.values(read),
                **origin(machine.threads, machine.isa),
                "device": "cpu" if gpu is None else gpu.device.name,
                "settings": settings,
            }
            say(json.dumps(line) + "\n")
        else:
            say(words(rate, read))


def check_names(known: Mapping[str, tuple[Sequence[str] | None, Sequence[str]]]) -> None:
    """UsageError when something given for a flag is none of its names; `known` is flag -> (given, names)."""
    for flag, (given, names) in known.items():
        for name in given or ():
            if name not in names:
                raise UsageError(f"{flag} {name}: unknown", hint=f"one of {', '.join(names)}")


def words(rate: KernelRate, read: KernelRate) -> str:
    """One line of the table."""
    values = rate.values(read)
    milliseconds = values["milliseconds"]
    assert isinstance(milliseconds, dict)
    disturbed = "  (disturbed)" if rate.company is not None and rate.company > DISTURBED else ""
    gmac = f"{values['gmac_per_second']:8.1f}" if rate.macs else " " * 8
    return (
        f"{rate.kernel:10} {rate.shape:32} {rate.rows:4} {milliseconds['median']:9.3f} {rate.gb_per_second:7.2f}"
        f" {values['share_of_read']:7.0%} {gmac}{disturbed}\n"
    )
