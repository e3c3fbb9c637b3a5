"""`strata vocab`, and the file it writes in its two places."""

import json
from pathlib import Path

import pytest

from strata.checkpoint.gguf import open_gguf
from strata.cli.main import run
from strata.convert.shapes import shape_of
from strata.convert.synth import synth
from strata.convert.types import Types
from strata.speculate.vocabulary import BUILT_IN, draft_tokens


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a tokenizer of bytes and one merge."""
    path = tmp_path_factory.mktemp("vocab") / "m.gguf"
    synth(path, shape_of("qwen3moe", "tiny", 1, 300), Types("Q8_0"), 3, 0.0, lambda *_: None)
    return path


def test_ids_are_chosen_by_how_often_they_occur(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "ids.txt"
    text.write_text("z" * 90 + "q" * 9 + "x", "utf-8")
    words = ["vocab", str(model), str(text), "--out", str(out), "--json"]
    assert run([*words, "--cover", "0.95"], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == 2 and found["counted"] == 100 and found["distinct"] == 3
    two = draft_tokens(str(out), 300, [])
    assert run([*words, "--cover", "0.9"], {}) == 2 and "exists" in capsys.readouterr().err
    assert run([*words, "--cover", "0.9", "--force"], {}) == 0
    one = draft_tokens(str(out), 300, [])
    assert two is not None and one is not None and len(one) == 1 and set(one) < set(two)

    built = tmp_path / "built.gguf"
    assert run(["quantize", str(model), str(built), "--type", "Q8_0", "--draft-vocab", str(out)], {}) == 0
    with open_gguf(built) as file:
        assert draft_tokens("auto", 300, [], file.metadata.values[BUILT_IN]) == one


def test_what_cannot_be_counted_is_refused(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, out = tmp_path / "empty.txt", tmp_path / "ids.txt"
    empty.write_text("", "utf-8")
    assert run(["vocab", str(model), str(empty), "--out", str(out)], {}) == 2
    assert "have no tokens" in capsys.readouterr().err
    assert run(["vocab", str(model), str(tmp_path / "none"), "--out", str(out)], {}) == 2
    assert "cannot be read as text" in capsys.readouterr().err
    out.write_text("1 400", "utf-8")
    assert run(["quantize", str(model), str(tmp_path / "q"), "--type", "Q8_0", "--draft-vocab", str(out)], {}) == 2
    assert "expected token ids from 0 to 299" in capsys.readouterr().err
