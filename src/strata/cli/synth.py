"""`strata synth`: a random model of a published shape, for benchmarks."""

from pathlib import Path
from typing import Annotated

import typer

from strata.cli.conversion import check_room, check_target, show
from strata.cli.progress import progress
from strata.convert.names import format_named, optional_format, pattern_named
from strata.convert.shapes import shape_of
from strata.convert.synth import plan_synth
from strata.convert.synth import synth as write
from strata.convert.types import Types


def synth(
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The .gguf file to write.")],
    arch: Annotated[str, typer.Option(metavar="A", help="qwen3moe, qwen3next, qwen35moe or qwen4exp.")],
    type_: Annotated[str, typer.Option("--type", metavar="T", help="Format of the matrices, e.g. Q4_K or iq3_s.")],
    expert_type: Annotated[str, typer.Option(metavar="T", help="Format of the experts.")] = "",
    down_type: Annotated[str, typer.Option(metavar="T", help="Format of the experts' down projections.")] = "",
    embedding_type: Annotated[str, typer.Option(metavar="T", help="Format of embeddings and vocabulary head.")] = "",
    tensor_type: Annotated[
        list[str] | None, typer.Option(metavar="REGEX=T", help="Format of tensors by name; the last match wins.")
    ] = None,
    scale: Annotated[str, typer.Option(help="tiny, or real: the published sizes.")] = "tiny",
    layers: Annotated[int, typer.Option(min=0, help="Number of layers; 0: the shape's own.")] = 0,
    vocabulary: Annotated[int, typer.Option(min=0, help="Number of tokens; 0: the shape's own.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same file.")] = 1,
    skew: Annotated[float, typer.Option(min=0, max=10, help="Above 0 some experts are hot: try 0.5.")] = 0.0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT when it exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Write a random model: right sizes and formats, meaningless text."""
    shape = shape_of(arch, scale, layers or None, vocabulary or None)
    types = Types(
        format_named("--type", type_),
        optional_format("--expert-type", expert_type),
        optional_format("--down-type", down_type),
        optional_format("--embedding-type", embedding_type),
        patterns=[pattern_named(text) for text in tensor_type or ()],
    )
    choices = plan_synth(shape, types)
    if not dry_run:
        check_target(target, force)
        check_room(target, choices)
        with progress("synth") as said:
            write(target, shape, types, seed, skew, said)
    show(choices, f"random {arch}", target, not dry_run, json_)
