"""`strata check`, through the command line."""

import json

import pytest

from chat.tiny_tokenizer import metadata_of, tokenizer_json
from models.made import path_of
from strata.chat.tokenizer import from_metadata
from strata.checks.drafted import NAME as DRAFTED
from strata.checks.equalities import Equalities
from strata.cli import check
from strata.cli.main import run

NAMES = ["one slot = many slots", "chunked prompt = whole prompt", "drafts on = drafts off", "restored = never parked"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(check, "LONGEST", 50)
    monkeypatch.setattr(check, "STEPS", 4)


@pytest.fixture
def path():
    return str(path_of("qwen3_moe", "gguf"))


def test_equalities_that_hold_exit_0(path, capsys):
    assert run(["check", "equalities", path, "--threads", "1"], {}) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        f"{name}: {rows} rows compared, equal"
        for name, rows in zip([*NAMES, DRAFTED], (20, 60, 20, 20, 768), strict=True)
    ]
    assert "prompts of 5, 23, 40, 50 tokens" in shown.err


def test_broken_on_purpose_exits_1_and_says_that_this_was_the_purpose(path, capsys):
    assert run(["check", "equalities", path, "--break", "--json"], {}) == 1
    shown = capsys.readouterr()
    values = [json.loads(line) for line in shown.out.splitlines()]
    assert [v["name"] for v in values] == [*NAMES, DRAFTED]
    assert all(not v["equal"] and "answer position" in v["difference"] and v["broken_on_purpose"] for v in values)
    assert values[0]["machine"]["isa"] and values[0]["model"] == path
    assert f"every one failed, which was the purpose of --break: {', '.join([*NAMES, DRAFTED])}" in shown.err


def test_a_break_that_is_not_noticed_is_named(path, capsys, monkeypatch):
    monkeypatch.setattr(Equalities, "tampered", lambda self, slot: None)
    assert run(["check", "equalities", path, "--break"], {}) == 1
    assert f"these are blind: {', '.join(NAMES)}" in capsys.readouterr().err


def test_one_that_fails_exits_1_by_name(path, capsys, monkeypatch):
    monkeypatch.setattr("strata.state.sequence.SequenceStates.restore", lambda *_: None)
    code = run(["check", "equalities", path], {})
    shown = capsys.readouterr()
    assert code == 1 and "check equalities: 1 of 5 failed: restored = never parked" in shown.err
    assert "one slot = many slots: 20 rows compared, equal" in shown.out


@pytest.fixture
def tokenizer(monkeypatch):
    """The oracles have none; ids beyond their vocabulary do not occur in this text."""
    made = from_metadata(metadata_of(json.loads(tokenizer_json("qwen2", 280)), "qwen2"))

    class Cut:
        bos = None

        def encode(self, text):
            return [t % 199 for t in made.encode(text)]

    monkeypatch.setattr(check, "load_tokenizer", lambda checkpoint: Cut())


def test_perplexity_of_a_text(path, tmp_path, capsys, tokenizer):
    file = tmp_path / "text.txt"
    file.write_text("a line of words that goes on and on; " * 6)
    command = ["check", "perplexity", path, "--text", str(file), "--ctx", "32", "--chunks", "2"]
    assert run(command, {}) == 0
    line = capsys.readouterr()
    assert line.out.startswith("perplexity ") and line.out.endswith("over 30 tokens of 2 chunks of 32\n")
    assert [word[:3] for word in line.err.splitlines()] == ["[1]", "[2]"]
    assert run([*command, "--json"], {}) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["chunks"], value["scored"], value["ctx"]) == (2, 30, 32)
    assert f"{value['value']:.4f}" == line.out.split()[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--text", "nowhere.txt"], "--text nowhere.txt: cannot be read as UTF-8"),
        (["--text", "short.txt"], "--text: expected at least 1024 tokens (two chunks of 512)"),
        (["--text", "short.txt", "--ctx", "600"], "--ctx-size 600: the model was trained for 512 tokens"),
        (["--text", "latin.txt"], "cannot be read as UTF-8"),
    ],
)
def test_a_text_that_cannot_be_scored_exits_2(path, tmp_path, capsys, tokenizer, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("a few words")
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    assert run(["check", "perplexity", path, *words], {}) == 2
    assert said in capsys.readouterr().err
