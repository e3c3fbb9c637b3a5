"""Conversations as files."""

import json
from pathlib import Path

import pytest

from strata.chat.conversation import Turn
from strata.cli.transcript import Transcript, read, write
from strata.core.errors import UsageError

TURNS = (Turn("user", "Hi 😀"), Turn("assistant", "Hello", "a person"))


def test_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    write(path, Transcript("Be brief.", TURNS), again=False)
    assert read(path) == Transcript("Be brief.", TURNS)
    with pytest.raises(UsageError, match="exists"):
        write(path, Transcript("", ()), again=False)
    write(path, Transcript("", ()), again=True)
    assert read(path) == Transcript("", ())


def test_it_is_what_the_web_app_exports(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    write(path, Transcript("Be brief.", TURNS), again=False)
    value = json.loads(path.read_text())
    export = Path(__file__).parents[2] / "src/strata/server/web/lib/export.js"
    fields = {"title", "created", "updated", "settings", "messages"}
    assert (
        "JSON.stringify({ strata_conversation: 1, title, created, updated, settings, messages }" in export.read_text()
    )
    assert value.keys() == fields | {"strata_conversation"}
    assert value["messages"][1] == {"role": "assistant", "content": "Hello", "reasoning": "a person"}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"strata_conversation": 2, "messages": []}',
        '{"strata_conversation": 1, "messages": "none"}',
        '{"strata_conversation": 1, "messages": [{"role": "assistant", "content": "first"}]}',
        '{"strata_conversation": 1, "messages": [{"role": "user", "content": 1}]}',
        '{"strata_conversation": 1, "messages": [7]}',
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"not JSON|not a conversation"):
        read(path)


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write(tmp_path / "no" / "folder", Transcript("", ()), again=False)
