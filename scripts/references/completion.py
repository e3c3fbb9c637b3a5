"""src/strata/cli/completion.json: what the shells' completion knows of commands, without loading any of them."""

import json

from strata.cli.commands import COMMANDS
from strata.cli.pages import page_of

KINDS = {
    "FILE": "file",
    "OUT": "file",
    "TEXT...": "file",
    "DIR": "folder",
    "MODEL": "model",
    "SRC": "model",
    "NAME": "held",
}


def completion() -> str:
    """The table: of every command its help, the kinds of its arguments, and its flags."""
    commands: list[str] = []
    for name, command in COMMANDS.items():
        page = page_of(name)
        flags = [
            {"names": list(entry.names), "help": sentence(entry.help), "value": kind(entry.metavar)}
            for entries in page.panels.values()
            for entry in entries
        ]
        lines = ",\n  ".join(json.dumps(flag) for flag in flags)
        arguments = json.dumps([kind(each.metavar) for each in page.arguments])
        about = f'"help": {json.dumps(command.help)}, "arguments": {arguments}'
        commands.append(f'{json.dumps(name)}: {{{about}, "flags": [\n  {lines}]}}')
    return "{" + ",\n".join(commands) + "}\n"


def kind(metavar: str) -> str:
    """What completes a value (completion.values): choices as they are, nothing for a switch."""
    return KINDS.get(metavar, metavar)


def sentence(text: str) -> str:
    """The first sentence of a help."""
    return text.partition(" [")[0].partition(". ")[0].partition("; ")[0].rstrip(".") + "."
