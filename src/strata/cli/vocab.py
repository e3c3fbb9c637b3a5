"""`strata vocab`: which tokens texts are made of, so that a drafting head proposes only these."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from strata.chat.tokenizer import load_tokenizer
from strata.checkpoint.locate import open_checkpoint
from strata.cli.conversion import check_target
from strata.cli.output import say
from strata.core.errors import UsageError
from strata.speculate.vocabulary import most_used

PER_LINE = 16


def vocab(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A .gguf file or a folder: whose tokenizer is used.")],
    texts: Annotated[list[Path], typer.Argument(metavar="TEXT...", help="Texts like the answers that are drafted.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file of ids to write, for --draft-vocab.")],
    cover: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Share of the texts' tokens that are to be among them.")
    ] = 0.99,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE when it exists.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Count the tokens of texts and write the most frequent ones. Drafts of others are never made; answers have them
    all the same, for the whole model checks every draft.
    """
    check_target(out, force)
    with open_checkpoint(model) as checkpoint:
        tokenizer = load_tokenizer(checkpoint)
    counts: Counter[int] = Counter()
    for text in texts:
        try:
            counts.update(tokenizer.encode(text.read_text("utf-8"), bos=False))
        except (OSError, ValueError) as error:
            raise UsageError(f"{text}: cannot be read as text: {error}") from error
    if not counts:
        raise UsageError("the texts have no tokens")
    ids = most_used(counts, cover)
    lines = [" ".join(map(str, ids[at : at + PER_LINE])) for at in range(0, len(ids), PER_LINE)]
    out.write_text("\n".join(lines) + "\n", "utf-8")
    found = {"tokens": len(ids), "of": tokenizer.size, "counted": counts.total(), "distinct": len(counts)}
    if json_:
        say(json.dumps({"vocab": str(out), **found}) + "\n")
    else:
        say(f"{out}: {len(ids)} of {tokenizer.size} tokens are {cover:.1%} of {counts.total()} that were counted\n")
