"""Arguments that several commands have."""

from typing import Annotated

import typer

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL", help="A .gguf file, a safetensors folder, or org/name[:QUANT] on the hub; none = the demo."
    ),
]
