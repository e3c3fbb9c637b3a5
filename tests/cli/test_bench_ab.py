"""`strata bench ab`, with made-up children and once with real ones."""

import json
import subprocess
import sys

import pytest

from models.made import path_of
from strata.cli import bench_ab
from strata.cli.main import run

ROUNDS = ["--rounds", "5", "--repeat", "1"]


@pytest.fixture
def children(monkeypatch):
    """Children that print what `answer(flags)` gives; the list of their commands."""
    commands = []

    def made(answer):
        def child(command, **options):
            commands.append((command, options["env"]))
            code, rate, company = answer(command)
            value = {"tokens_per_second": {"median": rate}, "company": company, "model": "m", "model_bytes": 3}
            value |= {"machine": {"threads": 2}, "settings": {}}
            return subprocess.CompletedProcess(command, code, json.dumps(value) + "\n" if not code else "", "why not")

        monkeypatch.setattr(bench_ab.subprocess, "run", child)
        monkeypatch.setattr(bench_ab, "commit", lambda folder: "abc")
        monkeypatch.setattr(bench_ab, "origin", lambda threads, isa: {"commit": "abc"})
        return commands

    return made


def test_sides_take_turns_with_their_own_flags(children, capsys):
    commands = children(lambda command: (0, 10.0 if command[-1] == "1" else 20.0, 0.0))
    words = ["bench", "ab", "m.gguf", "--a", "--threads 1", "--b", "--threads 2", "--both", "--context 0"]
    words += ["--through", "wait 1"]
    assert run([*words, "--rounds", "5", "--repeat", "3"], {"STRATA_ISA": "portable"}) == 0
    tails = [" ".join(command[5:]) for command, _ in commands]
    assert tails[:2] * 5 == tails and commands[0][0][:2] == ["wait", "1"]
    assert tails[0] == "bench decode m.gguf --context 0 --repeat 3 --json --threads 1"
    assert tails[1].endswith("--threads 2")
    assert commands[0][1]["STRATA_ISA"] == "portable" and commands[0][0][2] == sys.executable
    a, b, verdict = capsys.readouterr().out.splitlines()
    assert a.startswith("A 10.00 tok/s (from 10.00 to 10.00)") and b.startswith("B 20.00 tok/s")
    assert verdict.startswith("B / A = 2.000 (rounds from 2.000 to 2.000): B is faster")


def test_the_same_build_twice_ties(children, capsys):
    rates = iter([100, 101, 99, 98, 102, 103, 97, 98, 101, 99])
    children(lambda command: (0, float(next(rates)), 0.0))
    assert run(["bench", "ab", *ROUNDS], {}) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("no difference beyond noise")


def test_two_builds_run_from_their_own_checkouts(children, tmp_path, capsys):
    (tmp_path / "src" / "strata").mkdir(parents=True)
    (tmp_path / "src" / "strata" / "__init__.py").write_text("")
    commands = children(lambda command: (0, 10.0, 0.0))
    words = ["bench", "ab", "--build-b", str(tmp_path), "--bench", "prompt", *ROUNDS, "--json"]
    assert run(words, {}) == 0
    assert [env["PYTHONPATH"] for _, env in commands[:2]] == [str(bench_ab.HERE / "src"), str(tmp_path / "src")]
    value = json.loads(capsys.readouterr().out)
    assert (value["bench"], value["measured"], value["differs"], value["model"]) == ("ab", "prompt", False, "m")
    assert value["settings"]["a"]["commit"] == "abc" and value["settings"]["rounds"] == 5


def test_a_disturbed_run_is_repeated(children, capsys):
    companies = iter([0.5, 0.0, *[0.0] * 9])
    commands = children(lambda command: (0, 10.0, next(companies)))
    assert run(["bench", "ab", *ROUNDS], {}) == 0
    assert len(commands) == 11 and "A was disturbed: other processes took 50%" in capsys.readouterr().err


def test_a_child_that_fails_is_shown(children, capsys):
    children(lambda command: (1, 0.0, 0.0))
    assert run(["bench", "ab", *ROUNDS], {}) == 1
    said = capsys.readouterr().err
    assert "side A ended with exit code 1 and 0 results: why not" in said and "-m strata bench decode" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bench", "chat"], "--bench chat: unknown"),
        (["--build-a", "/nowhere"], "--build-a /nowhere: no checkout"),
        (["--rounds", "4"], "greater than or equal to 5"),
    ],
)
def test_what_cannot_be_compared_exits_2(words, said, capsys):
    assert run(["bench", "ab", *words], {}) == 2
    assert said in capsys.readouterr().err


def test_one_real_child(tmp_path):
    side = bench_ab.Side("a", ("--threads", "1"), bench_ab.HERE)
    path = str(path_of("qwen3_moe", "gguf"))
    words = ["bench", "decode", path, "--context", "0", "--tokens", "2", "--repeat", "1", "--json"]
    line = bench_ab.run(side, ["env"], words, {})
    assert bench_ab.rate_of(line) > 0 and line["machine"]["threads"] == 1
