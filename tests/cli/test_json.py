"""`--json`: every command that has a result has it, and then writes JSON and nothing else to stdout."""

import ast
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.fake_model import Scripted, loaded
from models.made import path_of
from strata.checks import measured
from strata.cli import run as run_command
from strata.cli.commands import COMMANDS
from strata.cli.main import run
from strata.cli.pages import page_of

TESTS = Path(__file__).parents[1]

WITHOUT: Mapping[str, str] = {
    "serve": "it runs until it is ended; what it says is its log",
    "chat": "a conversation has no result; /save writes it as JSON",
    "engine": "its output is the line protocol",
}

ELSEWHERE: Mapping[str, str] = {
    "pull": "hub/test_hub.py::test_the_commands",
    "rm": "hub/test_hub.py::test_the_commands",
    "calibrate": "cli/test_plan.py::test_calibrating_measures_and_keeps",
    "convert": "cli/test_convert.py::test_json_with_reasons",
    "quantize": "cli/test_quantize.py::test_dry_run",
    "vocab": "cli/test_vocab.py::test_ids_are_chosen_by_how_often_they_occur",
    "launch": "cli/test_launch.py::test_what_would_be_started_as_json",
    "parity": "cli/test_parity.py::test_the_compiled_operations_pass_too",
    "check equalities": "cli/test_check.py::test_broken_on_purpose_exits_1_and_says_that_this_was_the_purpose",
    "check perplexity": "cli/test_check.py::test_perplexity_of_a_text",
    "check batch": "checks/test_batch.py::test_a_crowd_says_what_each_says_alone",
    "check interleave": "checks/test_crowd_checks.py::checked",
    "check parking": "checks/test_crowd_checks.py::checked",
    "check early-close": "checks/test_crowd_checks.py::checked",
    "bench prompt": "cli/test_bench.py::test_prompt_gives_a_line_per_length",
    "bench serve": "checks/test_serving.py::found_by",
    "bench soak": "checks/test_serving.py::found_by",
    "bench join": "checks/test_joining.py::lines_of",
    "bench turns": "checks/test_joining.py::lines_of",
    "bench ab": "cli/test_bench_ab.py::test_two_builds_run_from_their_own_checkouts",
    "bench kernels": "cli/test_bench_kernels.py::test_json_lines_carry_machine_settings_and_the_memory_beside_them",
}
"""Functions of other tests that read a command's JSON."""


def has_json(name: str) -> bool:
    return any("--json" in entry.names for panel in page_of(name).panels.values() for entry in panel)


def test_every_command_with_a_result_has_the_flag() -> None:
    assert {name for name in COMMANDS if not has_json(name)} == WITHOUT.keys()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, list[str]]:
    """Command lines that take no time."""
    monkeypatch.setattr(run_command, "load", lambda model, wishes, log: loaded(Scripted("Hello")))
    monkeypatch.setattr(measured, "MEGABYTES", 1)
    model = str(path_of("qwen3_moe", "gguf"))
    return {
        "run": ["-p", "Hi"],
        "list": [],
        "inspect": [model],
        "plan": [model, "--cache-dir", str(tmp_path), "--threads", "1", "--isa", "portable", "--ctx-size", "64"],
        "doctor": [],
        "synth": [str(tmp_path / "m.gguf"), "--arch", "qwen3moe", "--type", "Q8_0", "--dry-run"],
        "bench decode": [model, "--context", "0", "--tokens", "1", "--repeat", "1", "--threads", "1"],
    }


def test_nothing_but_json_is_on_stdout(here: Mapping[str, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted([*here, *ELSEWHERE, *WITHOUT]) == sorted(COMMANDS)
    for name, words in here.items():
        run([*name.split(), *words, "--json"], {})
        lines = capsys.readouterr().out.splitlines()
        assert lines and all(isinstance(json.loads(line), dict) for line in lines), name


def reads_json(place: str) -> bool:
    """Whether the function at `file::name` asks for JSON, and its file reads it."""
    file, _, function = place.partition("::")
    text = (TESTS / file).read_text()
    found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == function]
    return any("--json" in ast.unparse(node) for node in found) and "json.loads" in text


def test_the_others_are_read_where_the_table_says() -> None:
    assert {name: place for name, place in ELSEWHERE.items() if not reads_json(place)} == {}
    assert not reads_json("cli/test_json.py::has_no_such_function")
    assert not reads_json("cli/test_main.py::test_exit_codes")
