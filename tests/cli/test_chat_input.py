"""Where the messages of `strata chat` come from."""

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from strata.cli import chat_input
from strata.cli.chat_commands import COMPLETIONS, WITH_FILE
from strata.cli.chat_input import CommandCompleter, Piped, Typed, history_file, open_history
from strata.cli.messages import is_open, message
from strata.core.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("one line", "one line"),
        ("  one line \n", "one line"),
        ("two\\\nlines", "two\nlines"),
        ('"""\ndef f():\n    pass\n"""', "def f():\n    pass"),
        ('"""one line"""', "one line"),
        ('a """ within', 'a """ within'),
        ("C:\\\\", "C:\\\\"),
        ('""""""', ""),
    ],
)
def test_what_is_said(typed: str, said: str) -> None:
    assert not is_open(typed)
    assert message(typed) == said


@pytest.mark.parametrize("typed", ["goes on\\", '"""', '"""and', '"""\nmore\n', "three\\\\\\"])
def test_what_goes_on(typed: str) -> None:
    assert is_open(typed)


@given(some.text(some.characters(exclude_characters='\\"\r\n'), max_size=20))
def test_plain_lines_are_whole_and_said_as_they_are(line: str) -> None:
    assert not is_open(line)
    assert message(line) == line.strip()


def test_lines_of_a_pipe() -> None:
    piped = Piped(io.StringIO('one\r\ntwo\\\nthree\n"""\n\nfour\n"""\n"""left open\n'))
    assert [piped.read() for _ in range(5)] == ["one", "two\\\nthree", '"""\n\nfour\n"""', '"""left open', None]


def test_bytes_that_are_no_text_are_said() -> None:
    with pytest.raises(UsageError, match="expected text in UTF-8"):
        Piped(io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8")).read()


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


def typed(keys: PipeInput, text: str, history: InMemoryHistory | None = None) -> str | None:
    keys.send_text(text)
    return Typed(history or InMemoryHistory(), COMPLETIONS, WITH_FILE, DummyOutput()).read()


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("Hi\r", "Hi"),
        ("two\\\rlines\r", "two\\\nlines"),
        ('"""\ra\rb\r"""\r', '"""\na\nb\n"""'),
        ("Alt\x1b\rEnter\r", "Alt\nEnter"),
        ("\x1b[200~pasted\nlines\n\x1b[201~\r", "pasted\nlines\n"),
        ("wrold\x17world\r", "world"),
        ("\x04", None),
    ],
)
def test_keys(keys: PipeInput, sent: str, read: str | None) -> None:
    assert typed(keys, sent) == read


def test_ctrl_c_gives_the_line_up(keys: PipeInput) -> None:
    with pytest.raises(KeyboardInterrupt):
        typed(keys, "half a\x03")


def test_what_was_typed_comes_back_with_up(keys: PipeInput) -> None:
    history = InMemoryHistory()
    assert typed(keys, "first\r", history) == "first"
    assert typed(keys, "\x1b[A\r", history) == "first"


def completed(text: str) -> list[str]:
    completer = CommandCompleter(COMPLETIONS, WITH_FILE)
    document = Document(text, len(text))
    return [
        text + c.text if c.start_position == 0 else c.text for c in completer.get_completions(document, CompleteEvent())
    ]


def test_commands_and_files_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept.json").touch()
    monkeypatch.chdir(tmp_path)
    assert completed("/s") == ["/system", "/save"]
    assert completed("/load k") == ["/load kept.json"]
    assert completed("/reset k") == completed("what is /s") == []


def test_history_is_private_and_survives(tmp_path: Path) -> None:
    path = history_file({"XDG_STATE_HOME": str(tmp_path / "state")})
    assert path == tmp_path / "state" / "strata" / "chat-history"
    open_history(path).append_string("two\nlines")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    assert list(open_history(path).load_history_strings()) == ["two\nlines"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert history_file({"XDG_STATE_HOME": "relative"}) == Path("~/.local/state/strata/chat-history").expanduser()


def test_a_long_history_loses_its_older_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_input, "MOST_HISTORY_BYTES", 2000)
    path = tmp_path / "history"
    history = open_history(path)
    for number in range(60):
        history.append_string(f"question {number}")
    kept = list(open_history(path).load_history_strings())
    assert kept == [f"question {number}" for number in range(59, 59 - len(kept), -1)]
    assert 10 < len(kept) < 30 and path.stat().st_size <= 1000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="the history cannot be kept"):
        open_history(tmp_path / "strata" / "history")


def test_a_history_that_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the history cannot be kept: Is a directory"):
        open_history(tmp_path)
