"""The command itself: exit codes, words, speed of --help by what it imports."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from strata import __version__
from strata.cli import main as cli
from strata.core.errors import CheckpointError, UsageError

SOURCE = str(Path(__file__).parents[2] / "src")


def run_module(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": SOURCE} | environ,
        timeout=120,
        check=False,
    )


def test_help_and_version_import_no_heavy_module() -> None:
    code = (
        "import sys; from strata.cli.main import run\n"
        "assert run(['--help'], {}) == 0 and run(['--version'], {}) == 0\n"
        "heavy = {m.split('.')[0] for m in sys.modules} & {'torch', 'numpy', 'tokenizers', 'jinja2', 'uvicorn'}\n"
        "assert not heavy, heavy"
    )
    done = run_module("-c", code)
    assert done.returncode == 0, done.stderr
    assert f"strata {__version__}" in done.stdout


def test_serving_imports_no_torch() -> None:
    done = run_module("-c", "import sys, strata.cli.serve; sys.exit('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_every_command_of_the_table_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"], {}) == 0
    shown = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert name in shown
        assert callable(getattr(importlib.import_module(command.module), command.function))
        assert cli.run([*name.split(), "--help"], {}) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sevre"], "hint: did you mean serve?"),
        (["two"], "hint: there is two words"),
        (["zzz"], "unknown command 'zzz'"),
        (["--port", "1"], "unknown command '--port'"),
    ],
)
def test_unknown_commands_are_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "COMMANDS", {**cli.COMMANDS, "two words": cli.Command("", "", "")})
    assert cli.run(words, {}) == 2
    assert said in capsys.readouterr().err


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([], {}) == 2
    assert "Usage: strata COMMAND" in capsys.readouterr().out


def test_unknown_flags_are_usage() -> None:
    assert cli.run(["inspect", "--no-such-flag"], {}) == 2


def command(error: BaseException | None) -> Callable[[], None]:
    def body() -> None:
        if error is not None:
            raise error

    return body


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0),
        (CheckpointError("model.gguf: cut short", "download it again"), 1),
        (UsageError("--port: no"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(
    error: BaseException | None, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_find", lambda name: command(error))
    assert cli.run(["try"], {}) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    if isinstance(error, CheckpointError):
        assert said == "error: model.gguf: cut short\nhint: download it again\n"


def test_a_missing_dependency_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "COMMANDS", {"try": cli.Command("no_such_module_here", "body", "")})
    assert cli.run(["try"], {}) == 1
    assert "needs the module no_such_module_here" in capsys.readouterr().err


def test_the_environment_reaches_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def body(context: typer.Context) -> None:
        seen.append(context.obj)

    monkeypatch.setattr(cli, "_find", lambda name: body)
    assert cli.run(["try"], {"STRATA_PORT": "1"}) == 0
    assert seen == [{"STRATA_PORT": "1"}]


def test_the_process_ends_with_the_code() -> None:
    done = run_module("-m", "strata", "inspect", "/nonexistent/model.gguf")
    assert done.returncode == 1
    assert done.stderr.startswith("error: /nonexistent/model.gguf")
    assert done.stdout == ""


def test_a_reader_that_leaves_is_no_traceback() -> None:
    code = (
        "import os, sys; from strata.cli import main\n"
        "def body():\n    for _ in range(100000): sys.stdout.write('x' * 100)\n"
        "main._find = lambda name: body\n"
        "sys.exit(main.run(['try'], {}))"
    )
    ours = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": SOURCE},
    )
    assert ours.stdout is not None
    ours.stdout.read(10)
    ours.stdout.close()
    assert ours.stderr is not None
    with ours.stderr:
        assert ours.stderr.read() == b""
    assert ours.wait(60) == 1
