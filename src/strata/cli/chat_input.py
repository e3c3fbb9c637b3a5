"""Where the messages of `strata chat` come from: a terminal with editing, history and completion, or a pipe."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output, create_output

from strata.cli.messages import is_open
from strata.core.errors import UsageError

PROMPT, MORE = "> ", ". "

MOST_HISTORY_BYTES = 1 << 20
"""Of a longer file the older half is dropped at a start."""


class Input(Protocol):
    """Gives one message after the other."""

    def read(self) -> str | None:
        """The lines of the next message as they were typed; None at the end, KeyboardInterrupt at Ctrl-C."""
        ...


class Piped:
    """Lines that another program writes, or a file."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def read(self) -> str | None:
        """See Input; what is still open at the end is a message, too."""
        lines: list[str] = []
        try:
            while line := self.stream.readline():
                lines.append(line.rstrip("\r\n"))
                if not is_open("\n".join(lines)):
                    break
        except UnicodeDecodeError as error:
            raise UsageError(f"stdin: expected text in UTF-8, found other bytes: {error.reason}") from error
        return "\n".join(lines) if lines else None


class Typed:
    """A person at a terminal: Enter sends, a message that is open goes on, so does Alt-Enter; a paste stays whole."""

    def __init__(
        self, history: History, commands: Mapping[str, str], with_file: Sequence[str], output: Output | None = None
    ) -> None:
        self.session: PromptSession[str] = PromptSession(
            history=history,
            completer=CommandCompleter(commands, with_file),
            complete_while_typing=False,
            enable_open_in_editor=True,
            key_bindings=_keys(),
            multiline=True,
            output=output or create_output(always_prefer_tty=True),
            prompt_continuation=lambda width, number, wrapped: MORE,
        )

    def read(self) -> str | None:
        """See Input."""
        try:
            return self.session.prompt(PROMPT)
        except EOFError:
            return None


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class CommandCompleter(Completer):
    """Names of /commands, and of files behind those that take one."""

    def __init__(self, commands: Mapping[str, str], with_file: Sequence[str]) -> None:
        self.commands = commands
        """Help by name."""
        self.with_file = with_file
        self.files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """See Completer."""
        word, space, rest = document.text_before_cursor.partition(" ")
        if not word.startswith("/"):
            return
        if not space:
            for name, text in self.commands.items():
                if name.startswith(word):
                    yield Completion(name, -len(word), display_meta=text)
        elif word in self.with_file:
            yield from self.files.get_completions(Document(rest, len(rest)), complete_event)


def history_file(environ: Mapping[str, str]) -> Path:
    """Where what was typed is remembered: below XDG_STATE_HOME, or ~/.local/state."""
    home = environ.get("XDG_STATE_HOME", "")
    base = Path(home) if home.startswith("/") else Path("~/.local/state").expanduser()
    return base / "strata" / "chat-history"


def open_history(path: Path | None) -> History:
    """What was typed before, in a file that only its owner reads; kept in memory alone for None.

    UsageError when the file cannot be written.
    """
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
        _shorten(path)
    except OSError as error:
        raise UsageError(f"{path}: the history cannot be kept: {error.strerror}", "--no-history keeps none") from error
    return FileHistory(path)


def _shorten(path: Path) -> None:
    """Drop the older half of a file that has become long; an entry starts with a comment line."""
    if path.stat().st_size <= MOST_HISTORY_BYTES:
        return
    later = path.read_bytes()[-MOST_HISTORY_BYTES // 2 :]
    _, _, whole = later.partition(b"\n\n#")
    path.write_bytes(b"\n#" + whole)
