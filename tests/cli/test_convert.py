"""`strata convert`."""

import json
from pathlib import Path

import pytest

from chat.tiny_tokenizer import tokenizer_json
from convert.folders import config_of, state_of, write_folder
from convert.making import logits, oracle
from strata.checkpoint.gguf import open_gguf
from strata.cli import conversion
from strata.cli.main import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """qwen3_moe with a tokenizer whose ids fit (of the model's 199 tokens only the first are used)."""
    built = oracle("qwen3_moe")
    return write_folder(tmp_path_factory.mktemp("cli") / "model", state_of(built), config_of(built))


def call(*words: object) -> int:
    return run([str(w) for w in words], {})


def test_writes_a_file_that_says_the_same(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m.gguf"
    assert call("convert", folder, out) == 0
    assert (logits(out) == logits(folder)).all()
    shown = capsys.readouterr()
    assert "convert 100%" in shown.err
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["format", "tensors", "values", "bytes", "bits/value"] in lines
    with open_gguf(out) as file:
        values = sum(r.count for r in file.tensors.values())
        assert ["all", str(len(file.tensors)), f"{values:,}", f"{4 * values:,}", "32.000"] in lines


def test_json_with_reasons(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("convert", folder, tmp_path / "m.gguf", "--type", "q8_0", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    tensors = {t["name"]: t for t in found["tensors"]}
    assert found["written"] is True and found["bytes"] == sum(t["bytes"] for t in tensors.values())
    assert tensors["blk.0.attn_q.weight"]["format"] == "Q8_0" and tensors["blk.0.attn_q.weight"]["reason"] == ""
    down = tensors["blk.0.ffn_down_exps.weight"]
    assert (down["format"], down["asked"], down["reason"]) == (
        "F16", "Q8_0", "rows of 40 do not fill Q8_0's blocks of 32",
    )  # fmt: skip
    assert tensors["blk.0.ffn_gate_inp.weight"]["reason"] == "routers stay F32"


def test_dry_run_writes_nothing(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("convert", folder, tmp_path / "m.gguf", "--dry-run") == 0
    assert "m.gguf (not written)" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_what_is_there_already(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m.gguf"
    out.write_bytes(b"precious")
    assert call("convert", folder, out) == 2
    assert "exists" in (error := capsys.readouterr().err) and "--force" in error
    assert out.read_bytes() == b"precious"
    assert call("convert", folder, out, "--force") == 0 and out.read_bytes()[:4] == b"GGUF"
    for target in (folder / "model.safetensors", folder / "config.json"):
        before = target.read_bytes()
        assert call("convert", folder, target, "--force") == 2
        assert "would overwrite its own source" in capsys.readouterr().err and target.read_bytes() == before
    link = tmp_path / "link.gguf"
    link.hardlink_to(folder / "model.safetensors")
    assert call("convert", folder, link, "--force") == 2
    assert call("convert", folder, folder) == 2 and "found a folder" in capsys.readouterr().err
    assert call("convert", folder, tmp_path / "no" / "m.gguf") == 2
    assert "does not exist" in capsys.readouterr().err


def test_wrong_words(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, text, code in (
        ((folder, tmp_path / "o.gguf", "--type", "Q4_K_M"), "mix of formats", 2),
        ((folder, tmp_path / "o.gguf", "--type", "Q9"), "not a format", 2),
        ((tmp_path / "none", tmp_path / "o.gguf"), "found nothing", 1),
        ((folder, tmp_path / "o.gguf", "--no-mtp"), "the model has no drafting layer", 2),
    ):
        assert call("convert", *words) == code
        assert text in capsys.readouterr().err
    assert call("convert", folder, tmp_path / "a.gguf") == 0
    assert call("convert", tmp_path / "a.gguf", tmp_path / "b.gguf") == 2
    assert "strata quantize changes formats" in capsys.readouterr().err


def test_a_disk_without_room(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(conversion.shutil, "disk_usage", lambda _: usage)
    assert call("convert", folder, tmp_path / "m.gguf") == 2
    assert "the disk has 1,000 free" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_tokenizer_that_does_not_fit(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_folder(tmp_path / "m", state_of(oracle("qwen3_moe")), config_of(oracle("qwen3_moe")))
    (other / "tokenizer.json").write_text(tokenizer_json("qwen2"))
    assert call("convert", other, tmp_path / "m.gguf") == 1
    assert "is outside the embedding's 199 rows" in capsys.readouterr().err
