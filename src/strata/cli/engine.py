"""`strata engine`: the line protocol on stdin and stdout."""

import faulthandler
import io
import os
import sys
from typing import TextIO

import typer

from strata.assemble import load
from strata.chat.tokenizer import load_tokenizer
from strata.cli.arguments import ModelArgument
from strata.cli.flags import Given, with_settings
from strata.cli.output import make_log
from strata.core.errors import StrataError
from strata.engine.lines import Greeting, Stall, serve_lines
from strata.engine.protocol import format_fatal, format_info
from strata.plan.wishes import Wishes


def end_stalled() -> None:
    """Say where every thread stands, and end: a thread that hangs in native code cannot be interrupted."""
    faulthandler.dump_traceback(sys.stderr, all_threads=True)
    sys.stderr.flush()
    os._exit(1)


class Percent:
    """Tells the client how far loading is, whenever a whole percent is done."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: tuple[str, int] | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """`done` of `total` bytes of `what`."""
        percent = min(100, 100 * done // max(1, total))
        if (what, percent) != self._last:
            self._last = what, percent
            self._out.write(format_info(loading=what, percent=percent) + "\n")
            self._out.flush()


@with_settings(Wishes)
def engine(
    given: Given,
    model: ModelArgument = None,
) -> None:
    """Speak the line protocol: one line each way, token ids only."""
    wishes = given.resolve(Wishes)
    # Standard output belongs to the protocol: whatever else is written there goes to standard error.
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
    try:
        loaded = load(model, wishes, make_log(wishes, Percent(out)))
        stop_ids = load_tokenizer(loaded.checkpoint).stop_ids
    except StrataError as error:
        out.write(format_fatal(str(error)) + "\n")
        out.flush()
        raise
    facts: dict[str, object] = {"model": loaded.checkpoint.path.name}
    facts |= {choice.name: choice.value for choice in loaded.plan.choices}
    greeting = Greeting(stop_ids, facts)
    stall = Stall(wishes.stall_s, end_stalled)
    raise typer.Exit(serve_lines(loaded.engine, lines, out, greeting, stall, prepare=loaded.prepare))
