"""`strata doctor`: what this machine has, what is missing, and what to do."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from strata.checks.health import Finding, look
from strata.cli.flags import Given
from strata.cli.tables import show_table
from strata.hub.hub import Hub
from strata.plan.wishes import Wishes
from strata.server.settings import ServerSettings

WORDS = {"ok": "ok", "note": "look", "bad": "BAD"}


def doctor(
    context: typer.Context,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Look at Python, kernels, processor, memory, GPU, disk and port; exits with 1 when models could not run."""
    given = Given(context.obj, {}, {})
    wishes, server = given.resolve(Wishes), given.resolve(ServerSettings)
    folders = [Hub().cache, Path(wishes.cache_dir).expanduser(), Path(wishes.state_dir).expanduser()]
    findings = look(server.port, folders)
    if json_:
        sys.stdout.write(json.dumps({"findings": [asdict(finding) for finding in findings]}) + "\n")
    else:
        show_table("This machine", ("", "", "found", "what to do"), [row(finding) for finding in findings])
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def row(finding: Finding) -> tuple[str, str, str, str]:
    """A line of the table."""
    return WORDS[finding.state], finding.name, finding.found, finding.advice
