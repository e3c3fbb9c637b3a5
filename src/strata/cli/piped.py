"""What standard input adds to a prompt: the context that a pipe or a file brings."""

import io
import os
import select
import stat
import sys
from typing import TextIO

from strata.cli.output import note
from strata.core.errors import UsageError

PATIENCE_S = 2.0


def prompt_of(prompt: str, no_stdin: bool = False) -> str:
    """The whole prompt: `prompt` behind what a pipe brings; that alone for `-`, or when nothing else is asked.

    A terminal and /dev/null bring nothing, unless `-` asks for it. UsageError for bytes that are no text.
    """
    if prompt == "-":
        if no_stdin:
            raise UsageError("-p - reads stdin, --no-stdin leaves it unread: expected one of them")
        return read_text(sys.stdin)
    if no_stdin or not is_piped(sys.stdin):
        return prompt
    tell_when_waiting(sys.stdin)
    return "\n\n".join(part for part in (read_text(sys.stdin).strip("\n"), prompt) if part)


def is_piped(stream: TextIO) -> bool:
    """Whether another program or a file is at the other end."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (io.UnsupportedOperation, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def read_text(stream: TextIO) -> str:
    """All of it."""
    try:
        return stream.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin: expected text in UTF-8, found other bytes: {error.reason}") from error


def tell_when_waiting(stream: TextIO, patience_s: float = PATIENCE_S) -> None:
    """Say that the pipe is silent, when it is: nobody should wonder why nothing happens."""
    if not select.select([stream], [], [], patience_s)[0]:
        note("waiting for the end of stdin, which is read as context; --no-stdin leaves it unread")
