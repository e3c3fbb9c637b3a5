"""The `strata` command: finds the command's module, turns errors into words and exit codes."""

import difflib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import typer

from strata import __version__
from strata.core.errors import StrataError, UsageError

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


class Command(NamedTuple):
    """Where a command lives."""

    module: str
    function: str
    help: str


COMMANDS: Mapping[str, Command] = {
    "serve": Command("strata.cli.serve", "serve", "Serve a model over HTTP (OpenAI's API)."),
    "run": Command("strata.cli.run", "run", "Answer one prompt."),
    "chat": Command("strata.cli.chat", "chat", "Chat in the terminal."),
    "engine": Command("strata.cli.engine", "engine", "The engine alone: its line protocol on stdin and stdout."),
    "plan": Command(
        "strata.cli.plan", "plan", "What goes where and why, and how fast it will be; before a download, too."
    ),
    "calibrate": Command("strata.cli.plan", "calibrate", "Measure this machine's rates, which plans are made from."),
    "doctor": Command("strata.cli.doctor", "doctor", "What this machine has, what is missing, and what to do."),
    "launch": Command("strata.cli.launch", "launch", "Start claude, codex or opencode on a running server."),
    "pull": Command("strata.cli.models", "pull", "Download a model from the hub: org/name[:QUANT]."),
    "list": Command("strata.cli.models", "list_", "List the models that were downloaded, or what a repository has."),
    "rm": Command("strata.cli.models", "rm", "Take a downloaded model away."),
    "inspect": Command("strata.cli.inspect", "inspect", "Show what is inside a model's files."),
    "convert": Command("strata.cli.convert", "convert", "Write a safetensors folder as one GGUF file."),
    "quantize": Command("strata.cli.quantize", "quantize", "Write a model with its matrices in other formats."),
    "vocab": Command("strata.cli.vocab", "vocab", "Choose the tokens that drafts are made of, from texts."),
    "synth": Command("strata.cli.synth", "synth", "Write a random model of a published shape, for benchmarks."),
    "parity": Command("strata.cli.parity", "parity", "Compare a model op by op with a second opinion."),
    "check equalities": Command("strata.cli.check", "equalities", "Slots, chunks, drafts, snapshots change no bit."),
    "check batch": Command("strata.cli.check_batch", "batch", "Streams that share steps say what they say alone."),
    "check interleave": Command(
        "strata.cli.check_crowd", "interleave", "Prompts are read beside streams, short first."
    ),
    "check parking": Command("strata.cli.check_crowd", "parking", "Conversations come back from RAM and disk exactly."),
    "check early-close": Command("strata.cli.check_crowd", "early_close", "Who leaves frees its slot at once."),
    "check perplexity": Command("strata.cli.check", "perplexity", "Perplexity of a text, as llama-perplexity has it."),
    "bench decode": Command("strata.cli.bench", "decode", "Tokens per second of decoding."),
    "bench prompt": Command("strata.cli.bench", "prompt", "Tokens per second of reading a prompt."),
    "bench serve": Command("strata.cli.bench_serve", "serve", "Clients against a server: first tokens, gaps, rates."),
    "bench soak": Command("strata.cli.bench_serve", "soak", "Random load for minutes: nothing lost, wrong or leaked."),
    "bench join": Command("strata.cli.bench_join", "join_", "Gaps of streams that cold prompts join, and overtaking."),
    "bench turns": Command("strata.cli.bench_join", "turns", "First tokens of next turns whose history is held."),
    "bench ab": Command("strata.cli.bench_ab", "ab", "Two settings or two builds in turn, and whether they differ."),
    "bench kernels": Command("strata.cli.bench_kernels", "kernels", "GB/s and GMAC/s of single kernels."),
}
"""A new command is one line here; its name is one word or two."""


def usage() -> str:
    """What `strata --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: strata COMMAND [ARGUMENTS]",
            "",
            "Runs Mixture-of-Experts language models larger than the GPU.",
            "",
            "Commands:",
            *lines,
            "",
            "strata COMMAND --help shows a command's flags; strata --version the version.",
            "",
        ]
    )


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run one command line; returns the exit code. The environment enters the program here and nowhere else."""
    first = words[0] if words else "--help"
    if first in {"--help", "-h", "help"}:
        sys.stdout.write(usage())
        return DONE if words else USAGE
    if first == "--version":
        sys.stdout.write(f"strata {__version__}\n")
        return DONE
    pair = " ".join(words[:2])
    name = pair if pair in COMMANDS else first
    try:
        function = _find(name)
    except StrataError as error:
        return _report(error)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(_with_exit_codes(function))
    try:
        app(list(words[len(name.split()) :]), prog_name=f"strata {name}", obj=environ)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    return DONE


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
