"""`strata convert`: a safetensors folder as one GGUF file."""

from pathlib import Path
from typing import Annotated

import typer

from strata.checkpoint.locate import open_checkpoint
from strata.cli.conversion import check_room, check_target, show
from strata.cli.progress import progress
from strata.convert.names import format_named
from strata.convert.types import Types, choose_all
from strata.convert.write import keep, read_items, weighed, write_model
from strata.core.errors import UsageError


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A folder of safetensors files with config.json.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The .gguf file to write.")],
    type_: Annotated[
        str, typer.Option("--type", metavar="T", help="Format of the matrices; keep: as stored, where GGUF has it.")
    ] = "keep",
    mtp: Annotated[bool, typer.Option(help="Keep the drafting layer, where the model has one.")] = True,
    threads: Annotated[int, typer.Option("--threads", min=0, help="Threads that encode; 0: all.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT when it exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Write a safetensors folder as one GGUF file, with llama.cpp's names, keys and conventions."""
    wanted = None if type_.lower() == "keep" else Types(format_named("--type", type_))
    with open_checkpoint(source) as checkpoint:
        if checkpoint.kind != "safetensors":
            raise UsageError(f"{source}: expected a safetensors folder, found GGUF", "strata quantize changes formats")
        if not dry_run:
            check_target(target, force, checkpoint.files, source)
        items, keys = read_items(checkpoint, mtp)
        choices = weighed([keep(i) for i in items] if wanted is None else choose_all(items, wanted), None)
        if not dry_run:
            check_room(target, choices)
            with progress("convert") as said:
                write_model(target, choices, keys, said, threads=threads or None)
    show(choices, str(source), target, not dry_run, json_)
