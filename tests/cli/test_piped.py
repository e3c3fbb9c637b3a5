"""What standard input adds to a prompt."""

import io
import os
import sys
from pathlib import Path

import pytest

from strata.cli import piped
from strata.cli.piped import prompt_of, tell_when_waiting
from strata.core.errors import UsageError


def pipe_with(data: bytes) -> io.TextIOWrapper:
    here, there = os.pipe()
    os.write(there, data)
    os.close(there)
    return os.fdopen(here, encoding="utf-8")


@pytest.mark.parametrize(
    ("data", "prompt", "whole"),
    [
        (b"def f(): ...\n", "What is this?", "def f(): ...\n\nWhat is this?"),
        (b"  indented\n", "Go on.", "  indented\n\nGo on."),
        (b"a question\n", "", "a question"),
        (b"a question\n", "-", "a question\n"),
        (b"", "What is this?", "What is this?"),
    ],
)
def test_a_pipe_comes_before_the_prompt(data: bytes, prompt: str, whole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipe_with(data) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert prompt_of(prompt) == whole


def test_a_file_is_read_and_no_stdin_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "text"
    file.write_text("context")
    with file.open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert prompt_of("And?", no_stdin=True) == "And?"
        assert prompt_of("And?") == "context\n\nAnd?"
    with pytest.raises(UsageError, match="expected one of them"):
        prompt_of("-", no_stdin=True)


def test_null_brings_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert prompt_of("And?") == "And?"


def test_other_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pipe_with(b"\xff\xff") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(UsageError, match="expected text in UTF-8"):
            prompt_of("And?")


def test_a_silent_pipe_is_told_about(capsys: pytest.CaptureFixture[str]) -> None:
    here, there = os.pipe()
    with os.fdopen(here) as stream:
        tell_when_waiting(stream, patience_s=0.0)
        assert "--no-stdin" in capsys.readouterr().err
        os.close(there)
        tell_when_waiting(stream, patience_s=piped.PATIENCE_S)
        assert capsys.readouterr().err == ""
