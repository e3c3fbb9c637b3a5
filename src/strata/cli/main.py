"""The `strata` command: finds the command's module, turns errors into words and exit codes."""

import difflib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from strata import __version__
from strata.cli.commands import COMMANDS, GROUPS, Command
from strata.cli.completion import complete
from strata.cli.pages import build
from strata.cli.shells import SHELLS, install_completion, shell_named
from strata.core.errors import StrataError, UsageError

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


def usage(groups: Mapping[str, Mapping[str, Command]] = GROUPS) -> str:
    """What `strata --help` prints; with fewer groups, what `strata check --help` does."""
    width = max(len(name) for group in groups.values() for name in group)
    lines = ["Usage: strata COMMAND [ARGUMENTS]", "", "Runs Mixture-of-Experts language models larger than the GPU."]
    for title, group in groups.items():
        lines += ["", f"{title}:", *(f"  {name.ljust(width)}  {command.help}" for name, command in group.items())]
    return "\n".join([*lines, "", *CLOSING, ""])


CLOSING = (
    "strata COMMAND --help     a command's flags, with examples (strata help COMMAND, too)",
    "strata --version          the version",
    "strata --show-completion [bash|zsh|fish]     what a shell needs to complete commands, flags and models",
    "strata --install-completion [bash|zsh|fish]  the same, put where that shell looks for it",
)


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run one command line; returns the exit code. The environment enters the program here and nowhere else."""
    if not words:
        sys.stdout.write(usage())
        return USAGE
    first = words[0]
    if first in TOP:
        return TOP[first](words[1:], environ)
    pair = " ".join(words[:2])
    name = pair if pair in COMMANDS else first
    longer = _longer(name)
    if longer and words[1:] in ([], ["--help"], ["-h"]):
        sys.stdout.write(usage(longer))
        return DONE if words[1:] else USAGE
    try:
        function = _find(name)
    except StrataError as error:
        return _report(error)
    command = build(_with_exit_codes(function), COMMANDS.get(name, Command("", "", "")))
    try:
        command(list(words[len(name.split()) :]), prog_name=f"strata {name}", obj=environ)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    return DONE


def _longer(name: str) -> dict[str, dict[str, Command]]:
    """The commands of two words that begin with `name`, by group."""
    found = {
        title: {other: command for other, command in group.items() if other.startswith(f"{name} ")}
        for title, group in GROUPS.items()
    }
    return {title: group for title, group in found.items() if group}


def _help(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """`strata help [COMMAND]` and `strata --help`."""
    if words and words[0] not in TOP:
        return run([*words, "--help"], environ)
    sys.stdout.write(usage())
    return DONE


def _version(words: Sequence[str], environ: Mapping[str, str]) -> int:
    sys.stdout.write(f"strata {__version__}\n")
    return DONE


def _completion(install: bool, words: Sequence[str], environ: Mapping[str, str]) -> int:
    try:
        shell = shell_named(words[0] if words else None, environ)
        if not install:
            sys.stdout.write(SHELLS[shell].script)
            return DONE
        for line in install_completion(shell, environ):
            sys.stdout.write(f"{line}\n")
    except StrataError as error:
        return _report(error)
    return DONE


def _complete(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """What a shell's script asks: `--complete SHELL WORDS...`, the last word being the one that is typed."""
    for line in complete(words[0] if words else "", words[1:]):
        sys.stdout.write(f"{line}\n")
    return DONE


TOP: Mapping[str, Callable[[Sequence[str], Mapping[str, str]], int]] = {
    "--help": _help,
    "-h": _help,
    "help": _help,
    "--version": _version,
    "--show-completion": functools.partial(_completion, False),
    "--install-completion": functools.partial(_completion, True),
    "--complete": _complete,
}
"""What needs no command."""


def _find(name: str) -> Callable[..., Any]:
    """The function of command `name`."""
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        longer = [other for other in COMMANDS if other.startswith(f"{name} ")]
        hint = f"did you mean {near[0]}?" if near else "strata --help lists them"
        raise UsageError(f"unknown command {name[:60]!r}", hint=f"there is {', '.join(longer)}" if longer else hint)
    command = COMMANDS[name]
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        raise StrataError(
            f"strata {name} needs the module {error.name}, which is not installed", hint="install the package again"
        ) from error
    function: Callable[..., Any] = getattr(module, command.function)
    return function


def _with_exit_codes(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the project's errors as words on stderr and exit codes."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except StrataError as error:
            raise typer.Exit(_report(error)) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            # Whoever read our output has gone; what is left of it must not raise once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise typer.Exit(FAILED) from error

    return wrapped


def _report(error: StrataError) -> int:
    sys.stderr.write(f"error: {error.message}\n")
    if error.hint:
        sys.stderr.write(f"hint: {error.hint}\n")
    return error.exit_code
