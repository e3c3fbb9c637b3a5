"""`strata bench decode` and `prompt`, through the command line."""

import json
from pathlib import Path

import pytest

from models.made import path_of
from strata.cli.main import run


@pytest.fixture
def path():
    return str(path_of("qwen3_moe", "gguf"))


def test_decode_gives_a_line_per_context(path, capsys):
    words = ["bench", "decode", path, "--context", "8", "--context", "20", "--tokens", "3", "--repeat", "2"]
    words += ["--slots", "2"]
    assert run([*words, "--json", "--isa", "portable"], {}) == 0
    values = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(v["bench"], v["context"], v["slots"], v["tokens"], len(v["runs"])) for v in values] == [
        ("decode", 8, 2, 3, 2),
        ("decode", 20, 2, 3, 2),
    ]
    assert values[0]["rows_per_step"] == 2 and values[0]["distinct_experts_per_step"] >= 9
    assert values[0]["machine"]["isa"] == "portable" and values[0]["settings"]["context"] == 23
    assert values[0]["text"] == "drawn ids" and "commit" in values[0]
    assert values[0]["model_bytes"] == Path(path).stat().st_size and values[0]["first"] > 0
    assert values[0]["share_of_bytes"] is None and 0 <= values[0]["company"] <= 1
    assert run(words, {}) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith("decode 20 tokens of context, 2 slots: ") and "2.0 rows per step" in line


def test_a_profile_says_where_a_step_goes(path, capsys):
    words = ["bench", "decode", path, "--profile", "--context", "8", "--tokens", "3", "--repeat", "2", "--slots", "2"]
    assert run([*words, "--json"], {}) == 0
    (value,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (value["bench"], value["context"], value["slots"], value["steps"]) == ("profile", 8, 2, 6)
    assert {"mixer", "router", "experts", "head", "sample", "gaps"} <= value["milliseconds"].keys()
    assert "linear" in value["operation_milliseconds"] and value["settings"]["context"] >= 11
    assert run(words, {}) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("a step of 2 slots behind 8 tokens: ") and "by operation:" in lines
    assert run([*words, "--isa", "naive"], {}) == 2
    assert "steps of these operations are not recorded" in capsys.readouterr().err


def test_prompt_gives_a_line_per_length(path, capsys):
    assert run(["bench", "prompt", path, "--context", "30", "--repeat", "1", "--json"], {}) == 0
    (value,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (value["bench"], value["context"], value["steps"], len(value["runs"])) == ("prompt", 30, 1, 1)


def test_settings_come_from_the_environment_too(path, capsys):
    words = ["bench", "prompt", path, "--context", "9", "--repeat", "1", "--json"]
    assert run(words, {"STRATA_ISA": "portable", "STRATA_PROMPT_CHUNK": "4"}) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["machine"]["isa"] == "portable" and value["steps"] == 3


def test_more_than_the_model_holds_exits_2(path, capsys):
    assert run(["bench", "decode", path, "--context", "600"], {}) == 2
    assert "--ctx-size 664: the model was trained for 512 tokens" in capsys.readouterr().err


def test_one_slot_and_more_give_the_share_that_bytes_allow(path, capsys):
    words = [
        "bench",
        "decode",
        path,
        "--context",
        "0",
        "--tokens",
        "3",
        "--repeat",
        "1",
        "--slots",
        "3",
        "--slots",
        "1",
    ]
    assert run([*words, "--drawn", "--json"], {}) == 0
    one, three = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (one["slots"], one["context"], one["share_of_bytes"], three["slots"]) == (1, 0, None, 3)
    rates = [value["tokens_per_second"]["median"] for value in (one, three)]
    moved = [value["bytes_per_step"] + value["state_bytes_per_step"] for value in (one, three)]
    allowed = 3 * rates[0] * moved[0] / moved[1]
    assert three["share_of_bytes"] == pytest.approx(rates[1] / allowed)
    assert run(words, {}) == 0
    assert "% of what the bytes allow" in capsys.readouterr().out.splitlines()[1]


def test_engine_settings_pass_through(path, capsys):
    words = ["bench", "prompt", path, "--context", "9", "--repeat", "1", "--json", "--prompt-chunk", "5"]
    assert run([*words, "--kv-type", "f32"], {}) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    assert run([*words, "--kv-type", "f64"], {}) == 2
    assert "f64" in capsys.readouterr().err


def test_a_disturbed_measurement_says_so(path, capsys, monkeypatch):
    monkeypatch.setattr("strata.checks.company.Company.share", lambda self: 0.4)
    assert run(["bench", "prompt", path, "--context", "9", "--repeat", "1"], {}) == 0
    assert "disturbed: other processes took 40% of the processors" in capsys.readouterr().out
