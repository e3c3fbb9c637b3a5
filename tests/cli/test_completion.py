"""What a Tab offers, asked of the completer and of real shells."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from strata.cli import completion
from strata.cli.completion import complete, split
from strata.cli.main import run
from strata.cli.shells import SHELLS, install_completion, shell_named
from strata.core.errors import StrataError, UsageError

ROOT = Path(__file__).parents[2]
MODEL = "Org/Tiny-GGUF"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models, and a cache that holds one."""
    for name in ("small.gguf", "notes.txt", ".hidden.gguf", "two words.gguf"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "large.gguf").touch()
    cache = tmp_path / ".cache" / "hub"
    snapshot = cache / "models--Org--Tiny-GGUF" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "tiny-Q4_K_M.gguf").write_bytes(b"GGUF")
    refs = cache / "models--Org--Tiny-GGUF" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    return tmp_path


def words(*typed: str) -> list[str]:
    return [line.partition("\t")[0] for line in complete("fish", typed)]


def test_commands() -> None:
    assert words("se") == ["serve"]
    assert words("bench", "k") == ["kernels"]
    assert {"check", "bench", "serve", "help"} <= set(words(""))
    assert "bench decode" not in words("")
    assert words("help", "qu") == ["quantize"]
    assert words("--install-completion", "") == ["bash", "zsh", "fish"]
    assert words("nonsense", "") == []
    assert complete("zsh", ["doc"]) == ["doctor\tWhat this machine has, what is missing, and what to do."]


def test_flags_and_their_values() -> None:
    assert words("serve", "--po") == ["--port"]
    assert words("serve", "--kv-type", "b") == ["bf16"]
    assert words("serve", "--kv-type=b") == ["--kv-type=bf16"]
    assert words("launch", "o") == ["opencode"]
    assert "--no-adapt-async" in words("run", "--no-")
    assert words("serve", "--port", "8") == []


def test_models_are_those_of_the_cache_and_of_the_folder(folder: Path) -> None:
    assert words("serve", "") == [f"{MODEL}:tiny-Q4_K_M", "small.gguf", "sub/", "two words.gguf"]
    assert words("serve", "--port", "1", "sub/") == ["sub/large.gguf"]
    assert words("rm", "Org") == [f"{MODEL}:tiny-Q4_K_M"]
    assert words("serve", "--config", "n") == ["notes.txt"]
    assert words("bench", "decode", "sm") == ["small.gguf"]
    assert words("serve", "/nonexistent/") == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("strata se", ["strata", "se"]),
        ("strata ", ["strata", ""]),
        ("strata run -p 'a b' ", ["strata", "run", "-p", "a b", ""]),
        ('strata run -p "a b', ["strata", "run", "-p", "a b"]),
        ("./strata serve two\\ w", ["./strata", "serve", "two w"]),
    ],
)
def test_lines_are_split_as_a_shell_would(line: str, found: list[str]) -> None:
    assert split(line) == found


def test_bash_takes_what_is_behind_a_colon_for_a_word(folder: Path) -> None:
    assert complete("bash", [f"strata serve {MODEL}:t"]) == ["tiny-Q4_K_M"]
    assert complete("bash", ["strata serve --kv-type=b"]) == ["bf16"]
    assert complete("bash", ["strata serve tw"]) == ["two\\ words.gguf"]


def a_command(folder: Path) -> Path:
    """`strata` as it would be installed."""
    file = folder / "bin" / "strata"
    file.parent.mkdir()
    file.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} -m strata "$@"\n')
    file.chmod(0o755)
    return file


def test_in_bash_itself(folder: Path) -> None:
    command = a_command(folder)
    line = f"{command} serve --kv-t"
    code = f"""{SHELLS["bash"].script}
        COMP_LINE='{line}' COMP_POINT={len(line)} COMP_WORDS=({line}) COMP_CWORD=2
        _strata_complete {command} && printf '%s\\n' "${{COMPREPLY[@]}}"; complete -p strata"""
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "--kv-type",
        "complete -o bashdefault -o default -F _strata_complete strata",
    ], done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
def test_in_zsh_itself(folder: Path) -> None:
    command = a_command(folder)
    code = f"""compdef() {{ :; }}; compadd() {{ print -r -- "$@" $values $open; }}
        {SHELLS["zsh"].script}
        words=({command} serve --kv-t) CURRENT=3 PREFIX=--kv-t; _strata"""
    done = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True, check=True)
    assert "--kv-type" in done.stdout.split(), done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_in_fish_itself(folder: Path) -> None:
    command = a_command(folder)
    code = f"set PATH {command.parent} $PATH; {SHELLS['fish'].script}; complete -C 'strata serve --kv-t'"
    done = subprocess.run(["fish", "--no-config", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("--kv-type\t"), done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_installed_once(tmp_path: Path, shell: str) -> None:
    environ = {"HOME": str(tmp_path), "SHELL": f"/usr/bin/{shell}"}
    assert shell_named(None, environ) == shell
    assert install_completion(shell, environ)[-1] == "the next shell completes strata"
    kind = SHELLS[shell]
    assert (tmp_path / kind.file).read_text() == kind.script
    before = {file: file.read_text() for file in tmp_path.rglob("*") if file.is_file()}
    install_completion(shell, environ)
    assert {file: file.read_text() for file in tmp_path.rglob("*") if file.is_file()} == before
    if kind.start:
        assert str(tmp_path / kind.file) in (tmp_path / kind.start).read_text()


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected one of bash, zsh, fish, found 'tcsh'"):
        shell_named(None, {"SHELL": "/bin/tcsh"})
    assert run(["--show-completion"], {}) == 2
    assert run(["--show-completion", "fish"], {}) == 0
    assert "complete --command strata" in capsys.readouterr().out
    (tmp_path / ".config").write_text("no folder")
    with pytest.raises(StrataError, match="cannot be written"):
        install_completion("fish", {"HOME": str(tmp_path)})


def test_asking_loads_no_command() -> None:
    code = (
        "import sys; from strata.cli.main import run\n"
        "assert run(['--complete', 'fish', 'serve', '--po'], {}) == 0\n"
        "heavy = {m.split('.')[0] for m in sys.modules} & {'torch', 'numpy', 'huggingface_hub', 'prompt_toolkit'}\n"
        "assert not heavy, heavy"
    )
    environ = {"PYTHONPATH": str(ROOT / "src"), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=False)
    assert (done.returncode, done.stdout.partition("\t")[0]) == (0, "--port"), done.stderr


def test_the_table_is_read_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"try": {"help": "", "arguments": ["a|b"], "flags": []}}))
    monkeypatch.setattr(completion, "TABLE", table)
    assert words("try", "") == ["a", "b"]
