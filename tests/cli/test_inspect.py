"""`strata inspect`."""

import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from checkpoint.files import (
    full_gguf,
    gguf,
    key,
    key_array,
    key_text,
    small_gguf,
    small_safetensors,
    text,
    write_folder,
)
from strata.cli import tables
from strata.cli.inspect import inspect
from strata.core.errors import CheckpointError, UsageError

app = typer.Typer()
app.command()(inspect)


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "m.gguf"
    file.write_bytes(small_gguf())
    return file


def test_plain_text_when_piped(path: Path) -> None:
    lines = [line.split() for line in shown(str(path)).splitlines()]
    for words in (
        ["architecture", "tiny"],
        ["parameters", "70"],
        ["bits", "per", "weight", "10.514"],
        ["tokenizer", "none"],
        ["chat", "template", "none"],
        ["Q8_0", "1", "64", "68"],
        ["a.u64", "18446744073709551615"],
        ["a.tokens", "[a,", ",", "日本]"],
        ["a.bools", "[false,", "true]"],
        ["second.weight", "2", "x", "32", "Q8_0", "68", "m.gguf"],
    ):
        assert words in lines


def test_long_values_are_abbreviated(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    tokens = key_array("tokens", 8, 1000, b"".join(text(f"t{i}") for i in range(1000)))
    file.write_bytes(gguf([tokens, key_text("template", "x\n\x1b[31m[bold]" + "y" * 500)], []))
    output = shown(str(file))
    assert "[t0, t1, t2, t3, t4, t5, ...] (1,000 items)" in output
    assert "x\\n\\x1b[31m[bold]yyy" in output and "\x1b" not in output
    assert max(len(line) for line in output.splitlines()) < 200
    complete = json.loads(shown(str(file), "--json"))["metadata"]
    assert len(complete["tokens"]) == 1000 and complete["template"].endswith("y" * 500)


def test_tensors_can_be_chosen(path: Path) -> None:
    listing = shown(str(path), "--tensors", "1")
    assert "Tensors (2, 1 shown: --tensors all lists them)" in listing
    assert "first" in listing and "second.weight" not in listing
    assert "second.weight" in shown(str(path), "--tensors", "all")
    chosen = shown(str(path), "--filter", "sec*weight")
    assert "Tensors (1 of 2 match)" in chosen and "second.weight" in chosen and "first" not in chosen
    assert "Tensors (0 of 2 match)" in shown(str(path), "--filter", "[fs]")
    assert "Tensors (2, 0 shown" in shown(str(path), "--tensors", "0")
    for wrong in ("-1", "many", "", "²"):
        with pytest.raises(UsageError, match="--tensors: expected a number or all"):
            inspect(path, tensors=wrong)


def test_json_is_complete(path: Path) -> None:
    found = json.loads(shown(str(path), "--json", "--tensors", "0"))
    assert found["parameters"] == 70 and found["bytes"] == 92 and found["files"][0]["path"] == str(path)
    assert found["metadata"]["a.u64s"] == [23703573157769, 2**64 - 1]
    assert found["metadata"]["a.f64"] == 1e300
    assert found["tokenizer"] is None and found["chat_templates"] == []
    assert [t["name"] for t in found["tensors"]] == ["first", "second.weight"]
    assert found["tensors"][1] == {
        "name": "second.weight",
        "stored_name": "second.weight",
        "shape": [2, 32],
        "format": "Q8_0",
        "offset": len(small_gguf()) - 96,
        "bytes": 68,
        "file": str(path),
    }


def test_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    nan, inf = b"\0\0\xc0\x7f", b"\0\0\x80\x7f"
    file.write_bytes(gguf([key("nan", 6, nan), key_array("infs", 6, 1, inf)], []))
    found = json.loads(shown(str(file), "--json"), parse_constant=lambda name: pytest.fail(name))
    assert found["metadata"] == {"nan": "nan", "infs": ["inf"]}


def test_tables_on_a_terminal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consoles: list[Console] = []

    def terminal(**options: bool) -> Console:
        consoles.append(Console(force_terminal=True, color_system=None, record=True, width=100, **options))  # type: ignore[arg-type]
        return consoles[-1]

    monkeypatch.setattr(tables, "Console", terminal)
    shown(str(path))
    output = "".join(console.export_text() for console in consoles)
    assert "│ second.weight │ 2 x 32 │ Q8_0" in output
    assert "[a, , 日本]" in output


def test_folder(tmp_path: Path) -> None:
    found = json.loads(shown(str(write_folder(tmp_path)), "--json"))
    assert (found["kind"], found["architecture"], found["parameters"]) == ("safetensors", "tiny", 10)


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_every_cut_ends_with_exit_code_1(tmp_path: Path, kind: str) -> None:
    data = full_gguf() if kind == "gguf" else small_safetensors()
    file = tmp_path / f"model.{kind}"
    (tmp_path / "config.json").write_text("{}")
    for length in range(len(data)):
        file.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=file.name) as caught:
            inspect(str(file if kind == "gguf" else tmp_path))
        assert caught.value.exit_code == 1
