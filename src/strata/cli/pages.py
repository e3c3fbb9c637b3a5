"""What is known of a command's arguments and flags: for `--help`, the reference, the man page and shell completion."""

import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption

from strata.cli.commands import COMMANDS, Command
from strata.cli.panels import PANELS

KIND = re.compile(r"<(?:list\[)?(int|float|str|path)\]?(?: range)?>")
KINDS = {"int": "N", "float": "X", "str": "TEXT", "path": "FILE"}
"""What stands for a value that has no word of its own."""

OPTIONS, ARGUMENTS, EXAMPLES = "Options", "Arguments", "Examples"


@dataclass(frozen=True, slots=True)
class Entry:
    """An argument or a flag."""

    shown: str
    """As help shows it: `--port N`."""
    names: tuple[str, ...]
    """Of a flag all of its words, those that switch it off behind the others; of an argument its name."""
    metavar: str
    """What stands for the value; "" for a switch."""
    help: str
    """With its default."""
    panel: str
    required: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Everything about a command that its help says."""

    name: str
    usage: str
    text: str
    arguments: tuple[Entry, ...]
    panels: Mapping[str, tuple[Entry, ...]]
    examples: tuple[tuple[str, str], ...]


class Described(TyperCommand):
    """A command whose help groups flags by panel and ends with examples: plain text, at any width, in a pipe too."""

    examples: tuple[tuple[str, str], ...] = ()

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """See click's Command."""
        arguments, panels = entries(self, ctx)
        sections = {ARGUMENTS: arguments, **panels} if arguments else panels
        for title, found in sections.items():
            with formatter.section(title):
                formatter.write_dl([(entry.shown, entry.help) for entry in found])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """See click's Command."""
        if self.examples:
            with formatter.section(EXAMPLES):
                for words, what in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}strata {words}\n")
                    with formatter.indentation():
                        formatter.write_text(what)


def build(function: Callable[..., Any], command: Command) -> Described:
    """The parser of a command and its help."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(cls=Described)(function)
    built = typer.main.get_command(app)
    assert isinstance(built, Described)
    built.examples = command.examples
    return built


def entries(command: TyperCommand, context: Any) -> tuple[tuple[Entry, ...], dict[str, tuple[Entry, ...]]]:
    """(arguments, flags by panel); a command's own flags come first, --help last of them."""
    arguments: list[Entry] = []
    panels: dict[str, list[Entry]] = {OPTIONS: []}
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is None:
            continue
        shown, text = KIND.sub(lambda found: KINDS[found[1]], record[0]), " ".join(record[1].split())
        if isinstance(param, TyperArgument):
            shown = shown.partition(" ")[0]
            name, many = param.name or "", param.nargs == -1
            arguments.append(Entry(shown, (name,), shown.strip("[].*"), text, ARGUMENTS, param.required, many))
            continue
        names = (*param.opts, *param.secondary_opts)
        switch = bool(getattr(param, "is_flag", False)) or bool(param.secondary_opts)
        metavar = "" if switch else shown.rpartition(" ")[2]
        panel = (isinstance(param, TyperOption) and param.rich_help_panel) or OPTIONS
        many = bool(getattr(param, "multiple", False))
        panels.setdefault(panel, []).append(Entry(shown, names, metavar, text, panel, param.required, many))
    order = sorted(panels, key=[OPTIONS, *PANELS].index)
    return tuple(arguments), {panel: tuple(panels[panel]) for panel in order}


@functools.cache
def page_of(name: str) -> Page:
    """The page of command `name`; loads its module."""
    command = COMMANDS[name]
    built = build(getattr(importlib.import_module(command.module), command.function), command)
    context = built.make_context(f"strata {name}", [], resilient_parsing=True)
    arguments, panels = entries(built, context)
    usage = " ".join([f"strata {name}", *built.collect_usage_pieces(context)])
    text = "\n".join(line.strip() for line in (built.help or "").strip().splitlines())
    return Page(name, usage, text, arguments, panels, command.examples)


def parse(name: str, words: Sequence[str]) -> None:
    """Read `words` as command `name` would, and do nothing; what it does not take is raised."""
    command = COMMANDS[name]
    built = build(getattr(importlib.import_module(command.module), command.function), command)
    built.make_context(f"strata {name}", list(words))
