"""`strata synth`."""

import json
from pathlib import Path

import numpy as np
import pytest

from convert.making import fast, logits
from strata.checkpoint.gguf import open_gguf
from strata.cli.main import run


def call(*words: object) -> int:
    return run(["synth", *(str(w) for w in words)], {})


def test_a_model_as_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m.gguf"
    words = ["--arch", "qwen35moe", "--type", "q8_0", "--expert-type", "q4_0", "--down-type", "mxfp4"]
    assert call(out, *words, "--layers", 4, "--vocabulary", 300, "--skew", 0.5, "--seed", 7) == 0
    with open_gguf(out) as file:
        assert file.types["qwen35moe.block_count"].value == 4
        assert file.tensors["token_embd.weight"].shape[0] == 300
        assert file.tensors["blk.3.ffn_up_exps.weight"].format.name == "Q4_0"
        assert file.tensors["blk.3.ffn_down_exps.weight"].format.name == "MXFP4"
    assert np.isfinite(logits(out, [1, 2, 3, 299], fast())).all()
    assert "synth 100%" in capsys.readouterr().err
    first = out.read_bytes()
    assert call(out, *words, "--layers", 4, "--vocabulary", 300, "--skew", 0.5, "--seed", 7, "--force") == 0
    assert out.read_bytes() == first


def test_the_real_size_can_be_planned_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--arch", "qwen4exp", "--type", "IQ3_S", "--down-type", "IQ4_NL", "--scale", "real", "--dry-run", "--json"]
    assert call(tmp_path / "m.gguf", *words) == 0
    found = json.loads(capsys.readouterr().out)
    assert 176e9 < found["values"] < 178e9 and not list(tmp_path.iterdir())
    reasons = {t["name"]: (t["format"], t["reason"]) for t in found["tensors"]}
    assert reasons["per_layer_token_embd.weight"] == ("IQ4_NL", "rows of 160 do not fill IQ3_S's blocks of 256")


def test_wrong_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m.gguf"
    for words, text in (
        ((out, "--type", "Q8_0"), "--arch"),
        ((out, "--arch", "qwen9", "--type", "Q8_0"), "expected one of qwen3moe"),
        ((out, "--arch", "qwen3moe", "--type", "Q8_0", "--scale", "big"), "expected tiny or real"),
        ((out, "--arch", "qwen3moe", "--type", "Q8_0", "--skew", "-1"), "--skew"),
        ((out, "--arch", "qwen3moe", "--type", "Q4_K_S"), "mix of formats"),
        ((tmp_path, "--arch", "qwen3moe", "--type", "Q8_0"), "found a folder"),
    ):
        assert call(*words) == 2, words
        assert text in capsys.readouterr().err
    assert not out.exists()
