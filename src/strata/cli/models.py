"""`strata pull`, `list`, `rm`: models of the hub in the cache that other tools share."""

import json
import sys
import time
from typing import Annotated

import typer

from strata.cli.output import note
from strata.cli.progress import progress
from strata.cli.tables import show_table
from strata.core.errors import UsageError
from strata.hub.cached import Held, find, held, remove
from strata.hub.hub import Hub
from strata.hub.name import expect_name

Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="org/name, or org/name:QUANT for one of several GGUF files.")]

DAY_S = 86_400.0


def pull(name: Name, json_: Json = False) -> None:
    """Download a model; an interrupted download goes on where it ended, and the bytes are checked by their hash."""
    hub, wanted = Hub(), expect_name(name)
    before = find(hub.cache, wanted)
    with progress(f"pulling {wanted}") as said:
        path = before or hub.pull(wanted, said)
    if json_:
        sys.stdout.write(json.dumps({"name": str(wanted), "path": str(path), "downloaded": before is None}) + "\n")
        return
    note(f"{wanted}: {'is here already' if before else 'downloaded'}")
    sys.stdout.write(f"{path}\n")


def list_(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="org/name: what the hub has of it; none = what the cache holds.")
    ] = "",
    json_: Json = False,
) -> None:
    """List the models that the cache holds, or the files that a repository offers."""
    if name:
        list_remote(name, json_)
        return
    hub = Hub()
    models = held(hub.cache)
    if json_:
        rows = [{"name": m.name, "bytes": m.nbytes, "complete": m.complete, "path": str(m.path)} for m in models]
        sys.stdout.write(json.dumps({"cache": str(hub.cache), "models": rows}) + "\n")
        return
    if not models:
        note(f"no models in {hub.cache}; strata pull org/name downloads one")
        return
    now_s = time.time()
    show_table(
        f"Models in {hub.cache}",
        ("name", "size", "last used"),
        [(m.name, size_of(m), ago(now_s - m.used_s)) for m in models],
        right=(1,),
    )


def list_remote(text: str, json_: bool) -> None:
    """The GGUF models of a repository, or its safetensors, with their sizes."""
    hub, name = Hub(), expect_name(text)
    if name.quant:
        raise UsageError(f"{text}: expected org/name, found a quantisation too", f"strata list {name.repo}")
    models = hub.offers(name)
    if json_:
        rows = [{"name": offered, "bytes": nbytes} for offered, nbytes in models]
        sys.stdout.write(json.dumps({"repository": name.repo, "models": rows}) + "\n")
        return
    sizes = [(offered, f"{nbytes / 1e9:.1f} GB") for offered, nbytes in models]
    show_table(f"{name.repo} on the hub", ("name", "size"), sizes, right=(1,))


def rm(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json_: Json = False,
) -> None:
    """Take a model out of the cache: all of org/name, or one of its GGUF files with :QUANT."""
    hub, wanted = Hub(), expect_name(name)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"rm {wanted}: nobody is there to ask", "say --yes")
        typer.confirm(f"Remove {wanted} from {hub.cache}?", abort=True, err=True)
    freed = remove(hub.cache, wanted)
    if json_:
        sys.stdout.write(json.dumps({"name": str(wanted), "freed_bytes": freed}) + "\n")
        return
    note(f"{wanted}: {freed / 1e9:.1f} GB are free again")


def size_of(model: Held) -> str:
    """Gigabytes, and whether a part is missing."""
    return f"{model.nbytes / 1e9:.1f} GB" + ("" if model.complete else ", incomplete")


def ago(seconds: float) -> str:
    """How long since, in days."""
    days = int(seconds / DAY_S)
    return "today" if days < 1 else f"{days} day{'s' if days > 1 else ''} ago"
