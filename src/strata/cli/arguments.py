"""Arguments that several commands have."""

from typing import Annotated

import typer

_HELP = "A .gguf file, a safetensors folder, or org/name[:QUANT] on the hub; none = the demo."

ModelArgument = Annotated[str | None, typer.Argument(metavar="MODEL", help=_HELP)]
ModelsArgument = Annotated[list[str] | None, typer.Argument(metavar="MODEL", help=_HELP)]
